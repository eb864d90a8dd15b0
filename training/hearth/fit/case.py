"""The case whose memory is estimated: settings with `auto` resolved, and the hardware of a rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hearth.config import Settings
from hearth.fit.capacity import Room, automatic_precision

_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}


@dataclass(frozen=True)
class Case:
    """The settings of a run, with `auto` resolved, and the hardware of one rank.

    Attributes:
        gpu: whether the rank computes on an NVIDIA GPU.
        unified: whether that GPU shares the computer's memory.
        ranks: the world size.
    """

    settings: Settings
    gpu: bool
    ranks: int = 1
    unified: bool = False

    @property
    def size(self) -> int:
        """Bytes of a number in the precision of the run."""
        return _BYTES[self.settings.precision]

    @property
    def unsloth(self) -> bool:
        """Whether Unsloth computes."""
        return self.settings.backend == "unsloth"

    @property
    def autocast(self) -> bool:
        """Whether torch casts what it multiplies to 16 bits."""
        return self.settings.precision in ("bf16", "fp16")

    @property
    def quantised(self) -> bool:
        """Whether the weights are in 4 or 8 bits."""
        return self.settings.load_in_4bit or self.settings.load_in_8bit

    @property
    def hidden_size(self) -> int:
        """Bytes of a number of the hidden states, which have the type of the embeddings.

        PEFT casts the embeddings of a quantised model to fp32, and weights that learn are fp32.
        """
        wide = not self.unsloth and (self.quantised or not self.settings.lora)
        return max(self.size, 4) if wide else self.size

    @property
    def linear_size(self) -> int:
        """Bytes of a number that a linear layer returns.

        A quantised layer returns the type of its input; in 8 bits on a CPU autocast chooses.
        """
        wide = self.settings.load_in_4bit or (self.settings.load_in_8bit and self.gpu)
        return max(self.size, 4) if wide else self.size

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch."""
        rows = min(self.settings.micro_batch, self.settings.global_batch)
        return rows * self.settings.sequence_length

    @property
    def rounds(self) -> bool:
        """Whether the ranks take local steps between exchanges; a single rank exchanges nothing."""
        return self.settings.sync_every > 1 and self.ranks > 1

    @property
    def sharers(self) -> int:
        """Number of ranks that share the frozen weights; 1 if each holds all of them."""
        return self.ranks if self.settings.parallel == "fsdp" else 1


def in_common_precision(settings: Settings, rooms: Iterable[Room]) -> Settings:
    """Return `settings` with `precision=auto` resolved as ranks with these rooms will together."""
    if settings.precision != "auto":
        return settings
    return settings.model_copy(update={"precision": automatic_precision(rooms)})


def case_of(
    settings: Settings, gpu: bool, gpus: bool, all_gpus: bool, ranks: int, unified: bool = False
) -> Case:
    """Return the case of one rank, with or without a `gpu`, in a run of `ranks` ranks.

    `auto` is resolved as the run will: 16 bits if any rank has a GPU (`gpus`), the 8-bit optimizer
    if all have one (`all_gpus`) and its state is not averaged, Unsloth on each GPU if it suits the
    settings. An automatic micro-batch counts as one row, its minimum.
    """
    automatic = {
        "micro_batch": 1,
        "precision": "bf16" if gpus else "fp32",
        "optimizer": "adamw_8bit" if all_gpus and settings.sync_every == 1 else "adamw",
        "backend": "unsloth" if gpu and settings.suits_unsloth else "transformers",
    }
    settings = settings.at_most()
    chosen = {name: each for name, each in automatic.items() if getattr(settings, name) == "auto"}
    return Case(settings.model_copy(update=chosen), gpu, ranks, unified)
