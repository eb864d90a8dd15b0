"""The optimizer step: clipping, optimizer, learning-rate schedule, loss scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from hearth.config import Settings
from hearth.model.muon import Muon
from hearth.model.optimizer import make_schedule


class Learner:
    """The `optimizer` of a run with its schedule (of `steps`), gradient clipping and loss scaler.

    `changing` holds the parts whose state belongs in a checkpoint, by name.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        settings: Settings,
        parameters: Sequence[torch.nn.Parameter],
        scaler: torch.amp.GradScaler,
        steps: int,
    ) -> None:
        self.optimizer = optimizer
        self._schedule = make_schedule(settings, self.optimizer, steps)
        self._parameters, self._scaler = parameters, scaler
        self._limit = settings.clip_norm or math.inf
        # The scaler creates its scale on first use, which a rank without rows may never reach.
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
    def stepped(self) -> bool:
        """Whether an optimizer step was ever taken, before this run was resumed included."""
        return any(state.get("step", 0) > 0 for state in self.optimizer.state.values())

    @property
    def shared_bytes(self) -> int:
        """Bytes of updates that the optimizer exchanges in a step, besides the gradients."""
        return self.optimizer.bytes if isinstance(self.optimizer, Muon) else 0

    @property
    def may_lower_scale(self) -> bool:
        """Whether fp16's loss scaler may still lower its scale (down to 1) by skipping steps."""
        return self._scaler.is_enabled() and self._scaler.get_scale() >= 1

    def update(self, rows: Sequence[int]) -> float:
        """Clip the gradient, take one optimizer step, and return the norm before clipping.

        Work that the optimizer divides over the ranks follows their `rows` in this step.

        For a summed gradient every rank sees the same norm, so all of them skip the step if it is
        not finite.
        """
        if isinstance(self.optimizer, Muon):
            self.optimizer.shares = rows
        self._scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._limit).item()
        if math.isfinite(norm) or self._scaler.is_enabled():
            self._scaler.step(self.optimizer)
        self._scaler.update()
        return norm

    def advance_schedule(self) -> None:
        """Advance the learning-rate schedule by one step; a skipped step counts too."""
        self._schedule.step()
