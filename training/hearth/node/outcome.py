"""The outcome of this node's preparation, kept for the next run with the same inputs.

A launch that finds it need not import torch before the ranks do. They prepare the node again
themselves and find everything cached, so that an outcome that is out of date costs a failed start,
never a wrong result. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from hearth.base.errors import HearthError
from hearth.base.files import read_object, sha256_of, write_whole
from hearth.base.nvml import Cards
from hearth.config import Run, in_parallel
from hearth.config.layout import Layout, held_adapter, held_shards
from hearth.data.locate import HubDataset, locate
from hearth.model.cache import held_model
from hearth.node.facts import code_checksum

_NOT_OF_THE_INPUTS = (
    *("run", "resume", "wandb", "wandb_project"),
    *("eval", "eval_limit", "push", "private", "copy_to"),
)
"""Settings that change neither the preparation nor the speed."""

_KEPT = 50
"""Number of outcomes on a node; the oldest are removed."""


def outcome_file(run: Run, layout: Layout, nproc: int, gpus: Any) -> Path | None:
    """Return the file of the outcome for these inputs, or None if it cannot be reused.

    `nproc` is the number of ranks that was asked for, `gpus` the GPUs that the driver lists. A
    resumed run is always prepared anew, since its checkpoints count.
    """
    model = _model(run, layout)
    data = _data(run, layout)
    if (
        run.resumes
        or model is None
        or data is None
        or (run.start and not held_adapter(run, layout))
    ):
        return None
    # A node is inspected before `auto` is resolved, and only `ddp` makes use of what is kept.
    whole = in_parallel(run, "ddp") if run.settings.parallel == "auto" else run
    settings = whole.settings.model_dump(mode="json")
    inputs = {
        "settings": {key: settings[key] for key in settings if key not in _NOT_OF_THE_INPUTS},
        "model": model,
        "data": data,
        "adapter": run.start.sha256 if run.start else "",
        "code": code_checksum(),
        "packages": sorted(f"{each.name} {each.version}" for each in distributions()),
        "machine": [platform.node(), platform.machine(), os.cpu_count(), gpus],
        "ranks": [nproc, os.environ.get("OMP_NUM_THREADS", "")],
        **(_limited() if gpus else {}),
    }
    text = json.dumps(inputs, sort_keys=True).encode()
    return layout.data / "prepared" / f"{hashlib.sha256(text).hexdigest()[:20]}.json"


def _limited() -> dict[str, list[float]]:
    """Return the limits in watts on the power of this node's GPUs, if any is not the default one.

    The speeds among the facts depend on them.
    """
    cards = Cards.open()
    if cards is None:
        return {}
    limits = [cards.power_limits(card) for card in range(cards.count)]
    cards.close()
    if all(each is None or each.now == each.default for each in limits):
        return {}
    return {"watts": [each.now if each else 0.0 for each in limits]}


def read_outcome(path: Path | None) -> dict[str, Any]:
    """Return the facts that were kept, or {}."""
    return (path and read_object(path)) or {}


def write_outcome(path: Path | None, facts: Mapping[str, Any]) -> None:
    """Keep the facts; a folder that cannot be written only costs time at the next run."""
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(facts, indent=1) + "\n")
        by_age = sorted(path.parent.glob("*.json"), key=lambda each: each.stat().st_mtime)
        for old in by_age[:-_KEPT]:
            old.unlink(missing_ok=True)


def _model(run: Run, layout: Layout) -> str | None:
    """Return the fingerprint of the run's model on this node, None if it is not complete."""
    try:
        held = held_model(run.source, layout.models, part=run.pipeline is not None)
    except HearthError:
        return None
    return held and held.fingerprint


def _data(run: Run, layout: Layout) -> str | None:
    """Return an identity of the run's data on this node, None if any of it is missing."""
    if run.settings.streaming:
        return None
    if run.shards:
        held = held_shards(run, layout, print)
        if len(held) < len(run.shards):
            return None
    places = layout.datasets(run)
    found = [
        _identity(name, sha256, Path(places[name]), layout) if name in places else sha256
        for name, sha256 in run.data_checksums.items()
    ]
    return None if None in found else " ".join(found)


def _identity(name: str, sha256: str | None, path: Path, layout: Layout) -> str | None:
    """Return an identity of one data set that this node has at `path`, None if it is missing."""
    if sha256:
        return sha256 if path.is_file() and sha256_of(path) == sha256 else None
    if isinstance(locate(name), HubDataset):
        path = layout.kept(name)
        return f"{path.stat().st_size} {path.stat().st_mtime_ns}" if path.is_file() else None
    return "shipped"  # with the code
