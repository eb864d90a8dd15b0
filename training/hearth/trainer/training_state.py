"""The state of training that lasts: trained weights, optimizer, schedule, loss scale, momentum."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hearth.model.backend import TrainableModel

_STATE = "state.pt"


class TrainingState:
    """The trained weights of `model`, and the parts `changing` beside them, by name."""

    def __init__(self, model: TrainableModel, changing: Mapping[str, Any]) -> None:
        self.model, self._changing = model, changing

    def get(self) -> dict[str, Any]:
        """Return the state as nested mappings and lists of numbers and tensors, not copied."""
        weights = {name: parameter.detach() for name, parameter in self.model.trainable()}
        parts = {name: part.state_dict() for name, part in self._changing.items()}
        return {"weights": weights, "parts": parts}

    @torch.no_grad()
    def set(self, state: Mapping[str, Any]) -> None:
        """Take over the state that another rank has got from `get`."""
        for name, parameter in self.model.trainable():
            parameter.copy_(state["weights"][name])
        for name, part in self._changing.items():
            part.load_state_dict(state["parts"][name])

    def save(self, folder: Path, base: str) -> None:
        """Write the state to `folder`; `base` names the base model."""
        self.model.save(folder / self.model.learned, base)
        # Open the file here: torch's own writer hides a full disk behind a failed assertion.
        with (folder / _STATE).open("wb") as file:
            torch.save({name: part.state_dict() for name, part in self._changing.items()}, file)

    def load(self, folder: Path) -> None:
        """Restore the state that was saved to `folder`.

        Raises `CheckpointError` if it belongs to another model.
        """
        self.model.restore(folder / self.model.learned)
        saved = torch.load(folder / _STATE, map_location="cpu", weights_only=True)
        for name, part in self._changing.items():
            if name in saved:  # a checkpoint of a single rank has no outer momentum
                part.load_state_dict(saved[name])
        optimizer, schedule = self._changing["optimizer"], self._changing["schedule"]
        # If the run has been given more steps, the rate follows the new schedule from here on.
        for group, base, curve in zip(
            optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
        ):
            group["lr"] = base * curve(schedule.last_epoch)
