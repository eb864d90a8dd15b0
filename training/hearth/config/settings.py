"""Every setting of a run: its type, default and meaning.

This table is the only place that defines training defaults; `--help`, the run file and the
documentation are made from it. Presets and people override it (see `resolve`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from hearth.base.places import RUN_NAME


def for_run_name(text: str, otherwise: str) -> str:
    """Turn `text` into a run-name prefix that leaves room for a timestamp.

    Returns `otherwise` if nothing is left of it.
    """
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:60] or otherwise


def _listed_unless(*words: str) -> Callable[[Any], Any]:
    """Return a validator that splits `4:2:1` or `q_proj,v_proj` into a list, except for `words`."""

    def listed(value: Any) -> Any:
        if isinstance(value, str) and value not in words:
            return [part.strip() for part in re.split(r"[:,]", value) if part.strip()]
        return value

    return listed


def _none(value: Any) -> Any:
    """Return None for the words that mean None on a command line."""
    return None if isinstance(value, str) and value.lower() in {"", "none", "null"} else value


def _setting(group: str, help_: str, default: Any = ..., **constraints: Any) -> Any:
    """Return a pydantic field with the `group` that is its heading in `--help`."""
    return Field(default, description=help_, json_schema_extra={"group": group}, **constraints)


Count = Annotated[int, Field(ge=1)]
OptionalCount = Annotated[Count | None, BeforeValidator(_none)]
OptionalText = Annotated[str | None, BeforeValidator(_none)]
Shares = tuple[Annotated[int, Field(ge=0)], ...]
Split = Annotated[
    Shares | Literal["auto", "equal"], BeforeValidator(_listed_unless("auto", "equal"))
]
Targets = Annotated[
    tuple[str, ...] | Literal["all-linear"], BeforeValidator(_listed_unless("all-linear"))
]


class Settings(BaseModel):
    """All settings of one run. Frozen; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: str = _setting("Run", "preset name, Hub id (owner/name) or local folder", min_length=1)
    dataset: str = _setting(
        "Run",
        "shipped data set, .jsonl/.txt/.csv/.parquet file, or Hub name[:config]",
        "homelab-qa",
        min_length=1,
    )
    run: OptionalText = _setting(
        "Run", "name of the run; by default model and time (under torchrun write --run-name)", None
    )
    resume: OptionalText = _setting(
        "Run", "name of an earlier run to go on with, from its newest checkpoint", None
    )
    scratch: bool = _setting(
        "Run",
        "begin with random weights: of the model only config.json and the tokenizer are used",
        False,
    )
    trust_remote_code: bool = _setting(
        "Run",
        "let Python code that comes with a model run, as your user on every node, where "
        "Transformers does not know the model itself; read it first",
        False,
    )
    seed: int = _setting("Run", "seed of the data order and of weights drawn at random", 1, ge=0)

    sequence_length: int = _setting("Data", "longest row, in tokens", 1024, ge=8)
    packing: bool = _setting("Data", "put several examples into one row, isolated", True)
    held_out: float = _setting(
        "Data",
        "fraction kept for evaluation, unless the file marks its own",
        0.1,
        ge=0,
        lt=1,
    )

    epochs: float = _setting("Steps", "passes over the data, if max_steps is not set", 1.0, gt=0)
    max_steps: OptionalCount = _setting("Steps", "stop after this many steps", None)
    global_batch: int = _setting("Steps", "rows a step, over all ranks together", 16, ge=1)
    micro_batch: Count | Literal["auto"] = _setting(
        "Steps",
        "most rows a rank computes at once; auto: what is measured to be fastest (1 with fsdp)",
        "auto",
    )
    split: Split = _setting(
        "Steps",
        "auto: by measured speed, following it (equal with fsdp); equal; or a share a rank, such "
        "as 4:2:1 (0 idles)",
        "auto",
    )
    replay: OptionalText = _setting(
        "Steps", "name of an earlier run whose split of each step is repeated", None
    )
    compress: Literal["none", "bf16"] = _setting(
        "Steps", "bf16: half the traffic; the gradients are then approximate", "none"
    )
    sync_every: int = _setting(
        "Steps",
        "for slow links: so many steps each rank learns by itself before what they learned is "
        "averaged; above 1 the result is approximate",
        1,
        ge=1,
    )

    learning_rate: float = _setting("Optimizer", "peak learning rate", 2e-4, gt=0)
    schedule: Literal["linear", "cosine", "constant", "constant_with_warmup"] = _setting(
        "Optimizer", "how the learning rate changes over the steps", "cosine"
    )
    warmup_steps: int = _setting("Optimizer", "steps until the peak is reached", 5, ge=0)
    optimizer: Literal["auto", "adamw", "adamw_8bit"] = _setting(
        "Optimizer",
        "adamw_8bit needs bitsandbytes; auto takes it where every rank has an NVIDIA GPU",
        "auto",
    )
    weight_decay: float = _setting("Optimizer", "decoupled weight decay", 0.0, ge=0)
    clip_norm: float = _setting(
        "Optimizer", "largest norm of the whole gradient; 0 turns clipping off", 1.0, ge=0
    )

    lora: bool = _setting(
        "LoRA",
        "off: the model itself learns, every weight of it, kept in float32 also where bf16 or fp16 "
        "computes; takes 16 bytes a weight, and a tenth of LoRA's learning rate or less",
        True,
    )
    lora_rank: int = _setting("LoRA", "rank of the adapter matrices", 16, ge=1)
    lora_alpha: float = _setting("LoRA", "scale of the adapter (alpha / rank)", 32.0, gt=0)
    lora_dropout: float = _setting(
        "LoRA",
        "dropout before the adapter; 0 keeps a run independent of its split",
        0.0,
        ge=0,
        lt=1,
    )
    lora_targets: Targets = _setting(
        "LoRA", "module names separated by commas, or all-linear", "all-linear"
    )

    parallel: Literal["ddp", "fsdp"] = _setting(
        "Machine",
        "ddp: each rank has the whole model; fsdp: each a part of its weights, for models that fit "
        "no single card, and slow: every micro-batch fetches the other parts over the network",
        "ddp",
    )
    backend: Literal["auto", "unsloth", "transformers"] = _setting(
        "Machine", "auto: Unsloth on NVIDIA GPUs if installed, else Transformers", "auto"
    )
    precision: Literal["auto", "bf16", "fp16", "fp32", "fp64"] = _setting(
        "Machine", "auto: bf16 if every rank can, else fp16 on GPUs, fp32 on CPUs", "auto"
    )
    load_in_4bit: bool = _setting("Machine", "keep the frozen weights in 4 bits (QLoRA)", False)
    gradient_checkpointing: bool = _setting(
        "Machine", "recompute activations: slower, far less memory", False
    )
    memory_limit: Annotated[float | None, BeforeValidator(_none)] = _setting(
        "Machine", "GiB that a rank on a CPU may use; by default what is free", None, gt=0
    )
    fit: Literal["refuse", "warn"] = _setting(
        "Machine", "what to do, before the download, where the model seems not to fit", "refuse"
    )
    threads: OptionalCount = _setting(
        "Machine", "CPU threads a rank; by default what the environment says", None
    )

    evaluate: bool = _setting("Record", "held-out perplexity and a sample before and after", True)
    eval_every: OptionalCount = _setting(
        "Record", "steps between two held-out evaluations; the best is kept in best/", None
    )
    log_every: int = _setting("Record", "steps between two lines of metrics", 1, ge=1)
    checkpoint_every: int = _setting("Record", "steps between two checkpoints", 50, ge=1)
    checkpoint_minutes: float = _setting(
        "Record", "minutes after which one is taken before that; 0: never", 10.0, ge=0
    )
    checkpoint_keep: int = _setting("Record", "checkpoints kept a node", 2, ge=1)
    wandb: Literal["auto", "off", "offline", "online"] = _setting(
        "Record", "auto: online if WANDB_API_KEY is set, else offline", "auto"
    )
    wandb_project: str = _setting("Record", "project name in Weights & Biases", "hearth")

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_as_number(cls, value: Any, info: Any) -> Any:
        """Refuse true and false for a number: Python would read them as 1 and 0."""
        annotation = cls.model_fields[info.field_name].annotation
        if value is False and "off" in get_args(annotation):
            return "off"  # YAML reads a bare `off` as false.
        if isinstance(value, bool) and annotation is not bool:
            raise ValueError("true and false are not accepted here")
        return value

    @field_validator("run", "resume", "replay")
    @classmethod
    def _safe_name(cls, value: str | None) -> str | None:
        """Refuse names that are not one plain path component."""
        if value is not None and not RUN_NAME.fullmatch(value):
            raise ValueError(
                "use letters, digits, '.', '_' and '-' only, starting with a letter or digit"
            )
        return value

    @field_validator("split")
    @classmethod
    def _someone_works(cls, value: Shares | str) -> Shares | str:
        """Refuse a split in which no rank has any rows."""
        if not isinstance(value, str) and sum(value) == 0:
            raise ValueError("at least one rank needs a share above 0")
        return value

    def contradictions(self) -> list[str]:
        """Return conflicts between settings that are each valid on their own."""
        findings = []
        if self.parallel == "fsdp" and self.load_in_4bit:
            findings.append(
                "parallel: fsdp shards weights of 16 bits and more, and with load_in_4bit they "
                "have 4; a model that fits a card in 4 bits trains far faster with parallel=ddp, "
                "else take load_in_4bit=false"
            )
        if self.parallel == "fsdp" and self.backend == "unsloth":
            findings.append(
                "parallel: fsdp shards the layers of Transformers, and Unsloth puts its own in "
                "their place; take backend=auto or backend=transformers"
            )
        if self.trust_remote_code and self.backend == "unsloth":
            findings.append(
                "trust_remote_code: Unsloth has its own code of the models that it knows; take "
                "backend=auto or backend=transformers"
            )
        if self.parallel == "fsdp" and not self.lora:
            findings.append(
                "parallel: fsdp trains an adapter only; with lora=off take parallel=ddp"
            )
        findings += self._not_by_itself()
        if self.scratch and self.lora:
            findings.append(
                "scratch: random weights must all learn, an adapter to them is of no use; take "
                "lora=off too"
            )
        if self.load_in_4bit and not self.lora:
            findings.append(
                "load_in_4bit: with lora=off all weights learn, and in 4 bits they cannot; take "
                "load_in_4bit=false, or lora=on"
            )
        if self.load_in_4bit and self.precision == "fp64":
            findings.append(
                "load_in_4bit: 4-bit weights are computed with in fp32 at most; with "
                "precision=fp64 take load_in_4bit=false"
            )
        if self.backend == "unsloth" and not self.lora:
            findings.append(
                "backend: Unsloth is used for LoRA only; with lora=off take backend=auto or "
                "backend=transformers"
            )
        return findings

    def _not_by_itself(self) -> list[str]:
        """Return conflicts with local steps (`sync_every` above 1)."""
        if self.sync_every == 1:
            return []
        reasons = {
            "parallel=fsdp": (
                self.parallel == "fsdp",
                "no rank has the whole model; take parallel=ddp",
            ),
            "optimizer=adamw_8bit": (
                self.optimizer == "adamw_8bit",
                "its state of 8 bits cannot be averaged; take optimizer=adamw",
            ),
            "precision=fp16": (
                self.precision == "fp16",
                "each rank would find a loss scale of its own; take precision=fp32, or bf16",
            ),
            "replay": (
                self.replay is not None,
                "a record of plans does not say where its rounds ended; leave replay out",
            ),
        }
        return [
            f"sync_every: with {name} the ranks cannot learn by themselves: {why}, or sync_every=1"
            for name, (given, why) in reasons.items()
            if given
        ]

    @property
    def suits_unsloth(self) -> bool:
        """Whether `backend: auto` takes Unsloth on a GPU.

        Only Transformers' layers can be sharded, Unsloth's kernels are made for LoRA, and Unsloth
        does not support a model that brings its own code.
        """
        return self.lora and self.parallel == "ddp" and not self.trust_remote_code

    @property
    def wants_speeds(self) -> bool:
        """Whether anything in this run depends on the speed of its ranks.

        With `parallel: fsdp` nothing does: ranks compute in lockstep, so none is faster than the
        others, and the network is slower than all of them.
        """
        by_speed = self.replay is None and "auto" in (self.split, self.micro_batch)
        return by_speed and self.parallel == "ddp"
