"""The state of training that lasts: trained weights, optimizer, schedule, loss scale, momentum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    def writer(self) -> Callable[[Path, str], None]:
        """Return a function that writes the state, as it is now, to a folder.

        The function gets the folder and the name of the base model. All ranks call this method, and
        the first one of each node the function.
        """
        return self._save

    def weights_writer(self) -> Callable[[Path, str], None]:
        """Return a function that writes the trained weights alone; see `writer`."""
        return self.model.save

    def _save(self, folder: Path, base: str) -> None:
        """Write the state to `folder`; `base` names the base model."""
        self.model.save(folder / self.model.learned, base)
        states = {name: part.state_dict() for name, part in self._changing.items()}
        save_parts(folder, states)

    def load(self, folder: Path) -> None:
        """Restore the state that was saved to `folder`.

        Raises `CheckpointError` if it belongs to another model.
        """
        self.model.restore(folder / self.model.learned)
        self._load_parts(load_parts(folder))

    def _load_parts(self, saved: Mapping[str, Any]) -> None:
        """Restore the parts beside the trained weights from their `saved` states, by name."""
        for name, part in self._changing.items():
            if name in saved:  # a checkpoint of a single rank has no outer momentum
                part.load_state_dict(saved[name])
        optimizer, schedule = self._changing["optimizer"], self._changing["schedule"]
        # If the run has been given more steps, the rate follows the new schedule from here on.
        for group, base, curve in zip(
            optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
        ):
            group["lr"] = base * curve(schedule.last_epoch)


def save_parts(folder: Path, states: Mapping[str, Any]) -> None:
    """Write the `states` of the parts beside the trained weights, by name, to `folder`."""
    # torch hides an error of the disk: wholly if it opens the file itself, and else behind a failed
    # assertion.
    with (folder / _STATE).open("wb") as file:
        try:
            torch.save(dict(states), file)
        except RuntimeError as error:
            hidden = error.__context__
            while hidden and not isinstance(hidden, OSError):
                hidden = hidden.__context__
            raise (hidden or error) from None


def load_parts(folder: Path) -> dict[str, Any]:
    """Return the states that `save_parts` wrote to `folder`."""
    return torch.load(folder / _STATE, map_location="cpu", weights_only=True)
