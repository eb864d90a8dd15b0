"""Inspect a node before a transfer: its copies of model and data, their paths, the free space."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hearth.base.errors import LaunchError, ModelError, SupplyError
from hearth.base.files import bytes_below, sha256_of, write_whole
from hearth.base.interface import card, free_port, interface_of
from hearth.config import Run
from hearth.config.layout import Layout, held_adapter, held_shards, staged_adapter, staged_of
from hearth.config.shape import shape_in
from hearth.data.locate import HubDataset, locate
from hearth.model.cache import held_model, unfinished_of
from hearth.model.folder import check_replaceable
from hearth.model.weight_files import pieces_without, weight_map
from hearth.transfer.holding import arrived_bytes
from hearth.transfer.pieces import Key

DIGITS = 16
"""Number of checksum digits that are compared and shown."""

_MARK = ".hearth-shared"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SYSTEM = Path("/sys")


def targets_of(run: Run, layout: Layout) -> dict[Key, Path]:
    """Return the paths of model and data of `run` on this node, as far as they can be sent.

    The user's own model folder is used in place; a shipped data set comes with the code. The files
    of a mixture come from the controller; each node gets its data sets from the Hub, as it does a
    stream.
    """
    targets: dict[Key, Path] = {}
    if run.source.kind == "hub":
        targets["model"] = layout.models / run.source.folder
    dataset = run.settings.dataset
    if not layout.in_workspace or run.settings.streaming or not isinstance(dataset, str):
        return targets
    if run.shards:
        # Each shard goes beside it under a name of its own, so that runs share what they share.
        targets["data"] = layout.data / f"{run.dataset_sha256[:12]}-shards"
    elif run.dataset_sha256:
        targets["data"] = Path(layout.datasets(run)[dataset])
    elif isinstance(locate(dataset), HubDataset):
        targets["data"] = layout.kept(dataset)
    return targets


def shards_here(run: Run, layout: Layout) -> dict[str, Path]:
    """Return the shards of `run` that are complete on this node, by their names in `data`."""
    return {staged_of(shard): path for shard, path in held_shards(run, layout, print).items()}


def _files_of_mixture(run: Run, layout: Layout) -> list[str]:
    """Return the names in `data` of the files of a mixture that are complete on this node."""
    if isinstance(run.settings.dataset, str) or not layout.in_workspace:
        return []
    places = layout.datasets(run)
    return [
        Path(place).name
        for name, place in places.items()
        if (sha256 := run.data_checksums[name])
        and Path(place).is_file()
        and sha256_of(Path(place)) == sha256
    ]


def _adapter_file(run: Run, layout: Layout) -> list[str]:
    """Return the name in `data` of the adapter that `run` begins with, if it is complete there."""
    staged = run.start and staged_adapter(run.start)
    held = held_adapter(run, layout)
    return [staged] if staged and held == layout.data / staged else []


def inspect_copies(run: Run, layout: Layout, address: str, shared: str) -> dict[str, Any]:
    """Return `findings` and the `facts` for `hearth.transfer.chain.NodeCopies`.

    The facts also have a free `port` at `address`, the absolute folder for `data` files and, if all
    nodes are to share a folder, its mark (`shared`) and its folder for them (`shared_data`).
    """
    findings: list[str] = []
    targets = targets_of(run, layout)
    shards = shards_here(run, layout)
    held = _held(run, layout, targets, shards)
    in_place = {"data": sum(path.stat().st_size for path in shards.values())}
    facts: dict[str, Any] = {
        "holds": {key: held.get(key, "") for key in targets},
        "pieces": _pieces_held(run, layout) if "model" in targets and "model" not in held else {},
        "folders": {key: str(path.parent) for key, path in targets.items()},
        "places": {key: _place(path) for key, path in targets.items()},
        "disks": {key: str(_nearest(path).stat().st_dev) for key, path in targets.items()},
        "free": {key: shutil.disk_usage(_nearest(path)).free for key, path in targets.items()},
        "arrived": {
            key: arrived_bytes(path) + in_place.get(key, 0) for key, path in targets.items()
        },
        "downloaded": {
            key: bytes_below(unfinished_of(path)) + in_place.get(key, 0)
            for key, path in targets.items()
        },
        "files": [
            *(sorted(shards) or [targets[key].name for key in held if key == "data"]),
            *_files_of_mixture(run, layout),
            *_adapter_file(run, layout),
        ],
        # Expanded here: Ansible's own modules look up the home of a user, which $HOME may not be.
        "data": str(layout.data.absolute()),
    }
    try:
        if "model" in targets:
            check_replaceable(targets["model"])
    except ModelError as error:
        findings += error.findings
    try:
        network = card(interface_of(address), _SYSTEM)
        facts |= {"mbit": network["nic_mbit"], "wireless": network["wireless"]}
        facts["port"] = free_port(address)
    except LaunchError as error:
        findings += error.findings
    if shared:
        facts["shared_data"] = str(Path(shared).expanduser().absolute() / "data")
        try:
            facts["shared"] = mark_of(Path(shared).expanduser())
        except SupplyError as error:
            findings += error.findings
    return {"facts": facts, "findings": findings}


def _held(
    run: Run, layout: Layout, targets: dict[Key, Path], shards: Mapping[str, Path]
) -> dict[str, str]:
    """Return the checksums of the complete targets."""
    held = {}
    if "model" in targets and (model := held_model(run.source, layout.models)):
        held["model"] = model.fingerprint[:DIGITS]
    if "data" in targets and run.shards and all(staged_of(shard) in shards for shard in run.shards):
        held["data"] = str(run.dataset_sha256)[:DIGITS]
    elif "data" in targets and targets["data"].is_file():
        found = sha256_of(targets["data"])
        if run.dataset_sha256 in (None, found):
            held["data"] = found[:DIGITS]
    return held


def _pieces_held(run: Run, layout: Layout) -> dict[str, Any]:
    """Return the checksum and the held `pieces` of a model that this node holds in part."""
    model = held_model(run.source, layout.models, part=True)
    shape = shape_in(model.path) if model and model.absent else None
    if model is None or shape is None:
        return {}
    count, tied = shape.num_hidden_layers, shape.tie_word_embeddings
    pieces = pieces_without(model.absent, weight_map(model.path), count, tied)
    return {"model": model.fingerprint[:DIGITS], "pieces": pieces}


def _nearest(path: Path) -> Path:
    """Return the nearest existing folder above `path`."""
    return next(each for each in path.parents if each.exists())


def _place(path: Path) -> str:
    """Return an identifier of machine, disk and folder, equal for all paths to the same place."""
    there = _nearest(path)
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    way = path.relative_to(there).as_posix()
    return f"{boot}-{there.stat().st_dev}-{there.stat().st_ino}-{way}"


# -- a folder that all nodes share -----------------------------------------------------------------


def mark(folder: Path) -> bool:
    """Mark the folder that all nodes are to share; return whether it was unmarked before.

    Raises `SupplyError` if it is missing, or cannot be written.
    """
    _check_there(folder)
    if (folder / _MARK).exists():
        return False
    try:
        write_whole(folder / _MARK, f"{uuid.uuid4().hex}\n")
    except OSError as error:
        raise SupplyError(
            f"{folder} (hearth_shared) cannot be written by this user ({error.strerror})"
        ) from error
    return True


def mark_of(folder: Path) -> str:
    """Return the mark of the folder, equal on all nodes that see the same folder.

    Raises `SupplyError` if there is none.
    """
    _check_there(folder)
    try:
        return (folder / _MARK).read_text(encoding="utf-8").strip()[:DIGITS]
    except OSError as error:
        raise SupplyError(
            f"{folder} (hearth_shared) is not the folder that the first node sees there: "
            f"{_MARK}, which that one has written, cannot be read ({error.strerror}); mount the "
            "same folder on every node"
        ) from error


def _check_there(folder: Path) -> None:
    if not folder.is_dir():
        raise SupplyError(
            f"{folder} (hearth_shared) is no folder on this node: mount it, or correct the path"
        )
