"""What a checkpoint holds: the adapter, and the state of all that changes with the steps."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import load_peft_weights, set_peft_model_state_dict

from hearth.errors import CheckpointError
from hearth.model.seam import TrainableModel

_ADAPTER = "adapter"
_STATE = "state.pt"


def save(
    folder: Path, model: TrainableModel, base: str, optimizer: Any, schedule: Any, scaler: Any
) -> None:
    """Write adapter and training state into `folder`; `base` names the base model."""
    model.save_adapter(folder / _ADAPTER, base)
    parts = {"optimizer": optimizer, "schedule": schedule, "scaler": scaler}
    # Through memory: torch's own writer hides the reason (a full disk) behind a failed assertion.
    buffer = io.BytesIO()
    torch.save({name: part.state_dict() for name, part in parts.items()}, buffer)
    (folder / _STATE).write_bytes(buffer.getbuffer())


def load(folder: Path, model: TrainableModel, optimizer: Any, schedule: Any, scaler: Any) -> None:
    """Set model and training state to what `folder` holds.

    Raises `CheckpointError` if it holds the adapter of another model.
    """
    weights = load_peft_weights(str(folder / _ADAPTER), "cpu")
    unknown = set_peft_model_state_dict(model.network, weights).unexpected_keys
    if unknown or len(weights) != sum(1 for _ in model.trainable()):
        raise CheckpointError(
            f"{folder}: its adapter does not fit this model; go on with the model, backend and "
            "lora_targets that the run began with"
        )
    saved = torch.load(folder / _STATE, map_location="cpu", weights_only=True)
    optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"])
    scaler.load_state_dict(saved["scaler"])
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
    shutil.rmtree(final, ignore_errors=True)
    beside.rename(final)
