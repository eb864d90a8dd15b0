"""Contents of a checkpoint: trained weights and the state of optimizer, schedule and scaler."""

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
    """Write trained weights and training state into `folder`; `base` names the base model.

    `parts` maps names to objects with a `state_dict`, among them `optimizer` and `schedule`.
    """
    model.save(folder / model.learned, base)
    # Open the file here: torch's own writer hides a full disk behind a failed assertion.
    with (folder / _STATE).open("wb") as file:
        torch.save({name: part.state_dict() for name, part in parts.items()}, file)


def load(folder: Path, model: TrainableModel, parts: Mapping[str, Any]) -> None:
    """Restore the model and the training state `parts` (see `save`) from `folder`.

    Raises `CheckpointError` if the checkpoint belongs to another model.
    """
    model.restore(folder / model.learned)
    saved = torch.load(folder / _STATE, map_location="cpu", weights_only=True)
    for name, part in parts.items():
        if name in saved:  # a checkpoint of a single rank has no outer momentum
            part.load_state_dict(saved[name])
    optimizer, schedule = parts["optimizer"], parts["schedule"]
    # If the run has been given more steps, the rate follows the new schedule from here on.
    for group, base, curve in zip(
        optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
    ):
        group["lr"] = base * curve(schedule.last_epoch)


def replace_folder(final: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary folder, sync it to disk, and replace `final` with it."""
    beside = final.with_name(f".{final.name}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    write(beside)
    sync_below(beside)
    shutil.rmtree(final, ignore_errors=True)
    beside.rename(final)
