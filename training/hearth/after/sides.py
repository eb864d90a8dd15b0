"""The two sides of a chat, loaded together: the base model and the trained one."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors import SafetensorError

from hearth.base.errors import ModelError
from hearth.base.files import bytes_below, read_object
from hearth.base.text import brief, byte_count
from hearth.config import Run, Settings, preset_names, read_run
from hearth.config.layout import Layout
from hearth.config.presets import ModelSource
from hearth.data.template import end_of_turn, ensure_chat_template
from hearth.model.cache import held_model
from hearth.model.code import code_to_run, may_run
from hearth.model.compatibility import tokenizer_in
from hearth.model.experts import targets_as_named
from hearth.model.fetch import fetch_model
from hearth.model.folder import check_folder
from hearth.model.load import import_backend
from hearth.model.precision import DTYPES, supported
from hearth.ranks.memory import free_gib, is_out_of_memory
from hearth.ranks.world import own_device
from hearth.record.result import Result, find_result, kept_result, other_base

Say = Callable[[str], None]

BASE = "base"
_GIB = 1 << 30


@dataclass(frozen=True)
class Side:
    """One of the models that answer: its name, `base`, `adapter` or `model`, and its parts."""

    name: str
    network: Any
    tokenizer: Any

    @property
    def positions(self) -> int | None:
        """The tokens that the model can read at once; None if there is no limit."""
        return getattr(self.network.config.get_text_config(), "max_position_embeddings", None)

    @property
    def vocabulary(self) -> int:
        """The number of tokens that the model knows."""
        return int(self.network.config.get_text_config().vocab_size)


@dataclass(frozen=True)
class Loading:
    """Options of loading: on the CPU alone, in 4 bits, the weights with the lowest held-out loss.

    `trust_remote_code` lets the base model's own code run; `base` is a folder to take the base
    model from instead of the run's own source.
    """

    cpu: bool = False
    four_bit: bool = False
    best: bool = False
    trust_remote_code: bool = False
    base: Path | None = None


def load_sides(folder: Path, layout: Layout, loading: Loading, say: Say) -> list[Side]:
    """Return the base model and the trained one of the run in `folder`, in this order.

    An adapter shares the weights of its base. A run that trained the whole model has its base
    beside it only if that is on this computer; a run from random weights has none.

    Raises `HearthError` if the run has no result yet, or if a model cannot be obtained, is another
    than the run's, or does not fit.
    """
    run = read_run(folder / "run.yml")
    checkpoints = layout.checkpoints_of(folder, run.name)
    with kept_result(lambda: find_result(folder, run, checkpoints, say, loading.best)) as result:
        if remark := result.remark(run.name):
            say(remark)
        loader = _SideLoader(run, loading, layout, say)
        return loader.load(result, loader.base_folder(folder, result))


class _SideLoader:
    """Loads the models of a run onto one device, in one precision."""

    def __init__(self, run: Run, loading: Loading, layout: Layout, say: Say) -> None:
        self._run, self._loading, self._layout, self._say = run, loading, layout, say
        self._device = torch.device("cpu") if loading.cpu else own_device()
        wanted = {
            # Weights that do not learn need no 32 bits.
            **{"lora": True, "scratch": False, "dropout": None},
            "trust_remote_code": loading.trust_remote_code,
            "load_in_4bit": run.settings.load_in_4bit or loading.four_bit,
            "load_in_8bit": run.settings.load_in_8bit and not loading.four_bit,
        }
        self._settings = run.settings.model_copy(update=wanted)
        # The run's own precision, if this device has it and the run names one.
        able, named = supported(self._device), run.settings.precision
        self._precision = named if named in able else able[0]

    def base_folder(self, folder: Path, result: Result) -> Path | None:
        """Return the folder of the base model, compared with the record of the run in `folder`.

        None if there is none to compare with. Raises `ModelError` if it is gone or another.
        """
        run, given, models = self._run, self._loading.base, self._layout.models
        source = ModelSource(name=given.name, id=str(given), kind="folder") if given else run.source
        if result.kind == "model" and not given:
            held = None if run.settings.scratch else held_model(source, models)
            if held is None:
                why = (
                    "the run began from random weights"
                    if run.settings.scratch
                    else f"{source.name} is not on this computer (--base FOLDER names it)"
                )
                self._say(f"only the trained model answers: {why}")
                return None
        else:
            try:
                held = fetch_model(source, models, self._say, known=preset_names())
            except ModelError as error:
                cure = "" if given else "; if it has moved, name its folder with --base FOLDER"
                raise ModelError(*(f"{finding}{cure}" for finding in error.findings)) from error
        recorded = other_base(folder, held.fingerprint)
        if recorded and given:
            self._say(f"{held.path} is not the model that {run.name} was trained on; going on")
        elif recorded:
            raise ModelError(
                f"{held.path}: this is not the model that {run.name} was trained on (fingerprint "
                f"{held.fingerprint[:16]}, not {recorded}), so the answers would say nothing of "
                f"the run; put that model back, or take this one with --base {held.path}"
            )
        return held.path

    def load(self, result: Result, base: Path | None) -> list[Side]:
        """Return the model in the folder `base`, if any, and the `result` of the run."""
        settings, device = self._settings, self._device
        bits = "8 bits" if settings.load_in_8bit else self._precision
        bits = "4 bits" if settings.load_in_4bit else bits
        place = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
        self._say(f"loading {self._run.source.name} in {bits} on {place} …")
        if result.kind == "model":
            sides = [] if base is None else [self._side(BASE, base)]
            return [*sides, self._side("model", result.folder)]
        assert base is not None
        plain = self._side(BASE, base)
        with self._memory_hint(base):
            adapted = _adapted(_with_same_weights(plain.network), result.folder, base)
        return [plain, Side("adapter", adapted, plain.tokenizer)]

    def _side(self, name: str, folder: Path) -> Side:
        """Return the side `name` with the model and the tokenizer in `folder`, ready to answer."""
        check_folder(folder)
        code_to_run(folder, self._run.source.id, self._loading.trust_remote_code)
        own_code = may_run(self._loading.trust_remote_code, folder)
        tokenizer = tokenizer_in(folder, own_code)
        ensure_chat_template(tokenizer)  # as the trainer did
        needed = bytes_loaded(folder, self._settings, self._precision)
        if self._device.type == "cpu" and needed > _free_bytes():
            # Linux would end this process, or another, without a word.
            raise ModelError(does_not_fit(folder, self._device, self._loading))
        with self._memory_hint(folder):
            backend = import_backend("transformers")
            network = backend.load_base(self._settings, folder, self._device, self._precision)
        network.eval().requires_grad_(False)
        generation = network.generation_config
        generation.eos_token_id = stop_tokens(tokenizer, generation.eos_token_id)
        if generation.pad_token_id is None:
            generation.pad_token_id = generation.eos_token_id[0]
        return Side(name, network, tokenizer)

    @contextmanager
    def _memory_hint(self, folder: Path) -> Iterator[None]:
        """Turn an out-of-memory error while the model in `folder` is loaded into a `ModelError`."""
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise ModelError(does_not_fit(folder, self._device, self._loading)) from error


def _adapted(network: Any, adapter: Path, base: Path) -> Any:
    """Return `network`, the model in `base`, with the adapter in the folder `adapter`."""
    from peft import PeftModel  # after the backend, which imports bitsandbytes cheaply

    try:
        with targets_as_named(network):
            return PeftModel.from_pretrained(network, adapter).eval().get_base_model()
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(
            f"{adapter}: this adapter does not fit {base}, or is damaged ({brief(error)}); bring "
            "the run's files here again, or name its own base model with --base FOLDER"
        ) from error


def stop_tokens(tokenizer: Any, known: int | list[int] | None) -> list[int]:
    """Return all tokens that end an answer: `known` ones, the tokenizer's, the chat template's."""
    found = known if isinstance(known, list) else [known]
    all_of_them = [*found, tokenizer.eos_token_id, end_of_turn(tokenizer)]
    return sorted({each for each in all_of_them if each is not None})


def bytes_loaded(folder: Path, settings: Settings, precision: str) -> float:
    """Return the bytes of memory that the weights in `folder` take once they are loaded."""
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    config = read_object(folder / "config.json") or {}
    if config.get("quantization_config"):
        return stored
    named = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    bits = DTYPES[precision].itemsize * 8
    if settings.load_in_4bit or settings.load_in_8bit:
        bits = 5 if settings.load_in_4bit else 9  # with their scales
    return stored * bits / 8 / getattr(torch, named, torch.float32).itemsize


def _free_bytes() -> float:
    """Return the bytes that this computer has for a process: free memory and swap."""
    return free_gib() * _GIB + psutil.swap_memory().free


def _with_same_weights(network: Any) -> Any:
    """Return a copy of `network` whose modules are its own and whose tensors are the same.

    An adapter put into the copy leaves `network` as it is, so that both can answer at once.
    """
    tensors = itertools.chain(network.parameters(), network.buffers())
    return copy.deepcopy(network, {id(tensor): tensor for tensor in tensors})


def does_not_fit(folder: Path, device: torch.device, loading: Loading) -> str:
    """Return the finding for a model that does not fit into the memory of `device`."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _free_bytes()
    cures = []
    if device.type == "cuda":
        cures.append("end what else uses the card (nvidia-smi names it)")
    if not loading.four_bit:
        cures.append("load it in 4 bits (--4bit)")
    if device.type == "cuda":
        cures.append("use the CPU (--cpu)")
    return (
        f"{folder}: {byte_count(bytes_below(folder))} of model do not fit into the memory of this "
        f"{'GPU' if device.type == 'cuda' else 'computer'} ({byte_count(free)} free); "
        + ", or ".join(cures or ["end other programs, or take a computer with more memory"])
    )
