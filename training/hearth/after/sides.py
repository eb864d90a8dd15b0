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
from hearth.config import Run, Settings, preset_names
from hearth.config.layout import Layout
from hearth.config.source import ModelSource
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
from hearth.record.result import Result, other_base

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
    """Options of loading: on the CPU alone, in 4 bits, with the base model's own code.

    `base` is a folder to take the base model from instead of the run's own source.
    """

    cpu: bool = False
    four_bit: bool = False
    trust_remote_code: bool = False
    base: Path | None = None


def load_sides(
    run: Run,
    folder: Path,
    result: Result,
    loading: Loading,
    device: torch.device,
    layout: Layout,
    say: Say,
) -> list[Side]:
    """Return the base model and the trained one of `run` in `folder`, in this order.

    An adapter shares the weights of its base. A run that trained the whole model has its base
    beside it only if that is on this computer; a run from random weights has none.

    Raises `ModelError` if a model cannot be obtained, is another than the run's, or does not fit.
    """
    wanted = {
        # Weights that do not learn need no 32 bits.
        **{"lora": True, "scratch": False, "dropout": None},
        "trust_remote_code": loading.trust_remote_code,
        "load_in_4bit": run.settings.load_in_4bit or loading.four_bit,
        "load_in_8bit": run.settings.load_in_8bit and not loading.four_bit,
    }
    settings = run.settings.model_copy(update=wanted)
    precision = precision_of(settings, device)
    base = _base_folder(run, folder, result, loading, layout, say)
    bits = "4 bits" if settings.load_in_4bit else "8 bits" if settings.load_in_8bit else precision
    place = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
    say(f"loading {run.source.name} in {bits} on {place} …")
    if result.kind == "adapter":
        assert base is not None
        plain = _load(BASE, settings, base, device, precision, loading, run)
        with _hint(base, device, loading):
            adapted = _adapted(_with_same_weights(plain.network), result.folder, base)
        return [plain, Side("adapter", adapted, plain.tokenizer)]
    trained = _load("model", settings, result.folder, device, precision, loading, run)
    if base is None:
        return [trained]
    return [_load(BASE, settings, base, device, precision, loading, run), trained]


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


def precision_of(settings: Settings, device: torch.device) -> str:
    """Return the run's own precision if `device` has it and the run names one, else its best."""
    able = supported(device)
    return settings.precision if settings.precision in able else able[0]


def _base_folder(
    run: Run, folder: Path, result: Result, loading: Loading, layout: Layout, say: Say
) -> Path | None:
    """Return the folder of the run's base model, compared with what the run recorded of it.

    None if there is none to compare with. Raises `ModelError` if it is gone or another.
    """
    source = run.source
    if loading.base:
        source = ModelSource(name=loading.base.name, id=str(loading.base), kind="folder")
    if result.kind == "model" and not loading.base:
        held = None if run.settings.scratch else held_model(source, layout.models)
        if held is None:
            why = (
                "the run began from random weights"
                if run.settings.scratch
                else f"{source.name} is not on this computer (--base FOLDER names it)"
            )
            say(f"only the trained model answers: {why}")
            return None
    else:
        try:
            held = fetch_model(source, layout.models, say, known=preset_names())
        except ModelError as error:
            cure = "; if the model has moved, name its folder with --base FOLDER"
            given = cure if not loading.base else ""
            raise ModelError(*(f"{finding}{given}" for finding in error.findings)) from error
    recorded = other_base(folder, held.fingerprint)
    if recorded and loading.base:
        say(f"{held.path} is not the model that {run.name} was trained on; going on, as asked")
    elif recorded:
        raise ModelError(
            f"{held.path}: this is not the model that {run.name} was trained on (fingerprint "
            f"{held.fingerprint[:16]}, not {recorded}), so the answers would say nothing of the "
            f"run; put that model back, or take this one all the same with --base {held.path}"
        )
    return held.path


def _load(
    name: str,
    settings: Settings,
    folder: Path,
    device: torch.device,
    precision: str,
    loading: Loading,
    run: Run,
) -> Side:
    """Return the side `name` with the model and the tokenizer in `folder`, ready to answer."""
    check_folder(folder)
    code_to_run(folder, run.source.id, loading.trust_remote_code)
    own_code = may_run(loading.trust_remote_code, folder)
    tokenizer = tokenizer_in(folder, own_code)
    ensure_chat_template(tokenizer)  # as the trainer did
    if device.type == "cpu" and bytes_loaded(folder, settings, precision) > _free_bytes():
        # Linux would end this process, or another, without a word.
        raise ModelError(does_not_fit(folder, device, loading))
    with _hint(folder, device, loading):
        backend = import_backend("transformers")
        network = backend.load_base(settings, folder, device, precision).eval()
    network.requires_grad_(False)
    generation = network.generation_config
    generation.eos_token_id = stop_tokens(tokenizer, generation.eos_token_id)
    if generation.pad_token_id is None:
        generation.pad_token_id = generation.eos_token_id[0]
    return Side(name, network, tokenizer)


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


@contextmanager
def _hint(folder: Path, device: torch.device, loading: Loading) -> Iterator[None]:
    """Turn an out-of-memory error while the model in `folder` is loaded into a `ModelError`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise ModelError(does_not_fit(folder, device, loading)) from error


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
