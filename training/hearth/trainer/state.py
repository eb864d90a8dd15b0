"""What a checkpoint holds: what has learned, and the state of all that changes with the steps."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from hearth.base.files import sync_below
from hearth.model.backend import TrainableModel

_STATE = "state.pt"


def save(folder: Path, model: TrainableModel, base: str, parts: Mapping[str, Any]) -> None:
    """Write what has learned and its training state into `folder`; `base` names the base model.

    `parts` are all that change with the steps, by name; `optimizer` and `schedule` among them.
    """
    model.save(folder / model.learned, base)
    # Opened here: torch's own writer hides the reason (a full disk) behind a failed assertion.
    with (folder / _STATE).open("wb") as file:
        torch.save({name: part.state_dict() for name, part in parts.items()}, file)


def load(folder: Path, model: TrainableModel, parts: Mapping[str, Any]) -> None:
    """Set model and training state to what `folder` holds, `parts` being as in `save`.

    Raises `CheckpointError` if it is of another model.
    """
    model.restore(folder / model.learned)
    saved = torch.load(folder / _STATE, map_location="cpu", weights_only=True)
    for name, part in parts.items():
        if name in saved:  # A rank that was alone for a while had no outer momentum to keep.
            part.load_state_dict(saved[name])
    optimizer, schedule = parts["optimizer"], parts["schedule"]
    # Where the run was given more steps, the rate follows the new curve from here on.
    for group, base, curve in zip(
        optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
    ):
        group["lr"] = base * curve(schedule.last_epoch)


def replace_folder(final: Path, write: Callable[[Path], object]) -> None:
    """Have `write` fill a new folder, which then takes the place of `final`."""
    beside = final.with_name(f".{final.name}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    write(beside)
    sync_below(beside)
    shutil.rmtree(final, ignore_errors=True)
    beside.rename(final)
