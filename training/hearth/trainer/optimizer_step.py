"""What turns gradients into other parameters: clipping, optimizer, learning rate, loss scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from hearth.config import Settings
from hearth.model.optimizer import make_optimizer, make_schedule


class Learner:
    """The optimizer of a run and what goes with it.

    Args:
        chosen: what `choose_optimizer` returned.
        steps: of the whole run, for the learning rate.

    Attributes:
        changing: by name, what a checkpoint holds of it.
    """

    def __init__(
        self,
        chosen: str,
        settings: Settings,
        parameters: Sequence[torch.nn.Parameter],
        scaler: torch.amp.GradScaler,
        steps: int,
    ) -> None:
        self.optimizer = make_optimizer(chosen, settings, parameters)
        self._schedule = make_schedule(settings, self.optimizer, steps)
        self._parameters, self._scaler = parameters, scaler
        self._limit = settings.clip_norm or math.inf
        # The scaler makes its scale for the first loss that it sees; a rank without rows has none.
        scaler.scale(torch.zeros((), device=parameters[0].device))
        self.changing = {
            "optimizer": self.optimizer,
            "schedule": self._schedule,
            "scaler": scaler,
        }

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        return self.optimizer.param_groups[0]["lr"]

    @property
    def seeks_scale(self) -> bool:
        """Whether skipped steps are how fp16's loss scaler finds its scale, down to 1."""
        return self._scaler.is_enabled() and self._scaler.get_scale() >= 1

    def update(self) -> float:
        """Clip, take one step of the optimizer, and return the gradient's norm.

        Where that is of the summed gradient, every rank sees the same number and all of them skip
        a step whose gradient is not finite.
        """
        self._scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._limit).item()
        if math.isfinite(norm) or self._scaler.is_enabled():
            self._scaler.step(self.optimizer)
        self._scaler.update()
        return norm

    def use_up_rate(self) -> None:
        """Go on to the learning rate of the next step, also behind one that was skipped."""
        self._schedule.step()
