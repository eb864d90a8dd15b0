"""The optimizer step: clipping, optimizer, learning-rate schedule, loss scale.

It is proposed, then committed: the part with the other ranks comes first and changes nothing that
lasts, so that a step that loses a rank is undone and taken again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from hearth.config import Settings
from hearth.model.optimizer import Muon, make_schedule


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
        self._takes = False
        self._marked: tuple[dict[str, Any], list[float]] = ({}, [])
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
        """Whether fp16's loss scaler may lower its scale (down to 1) by skipping this step."""
        if not self._scaler.is_enabled():
            return False
        return self._scaler.get_scale() * self._scaler.get_backoff_factor() >= 1

    def propose(self, rows: Sequence[int], squares: float | None = None) -> float:
        """Clip the gradient, let the ranks divide the optimizer's work; return the norm before.

        The work follows their `rows` in this step. `commit` or `abandon` comes next. `squares` is
        the squared norm of the whole gradient, still scaled, if this rank has only a part of it.

        Every rank sees the same norm, so all of them skip the step if it is not finite.
        """
        if squares is None:
            self._scaler.unscale_(self.optimizer)
            norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._limit).item()
        else:
            norm = self._clip_part(squares)
        self._takes = math.isfinite(norm) or self._scaler.is_enabled()
        if self._takes and isinstance(self.optimizer, Muon):
            self.optimizer.shares = rows
            self.optimizer.prepare()
        return norm

    def _clip_part(self, squares: float) -> float:
        """Clip this rank's part of a gradient with these scaled `squares`; return the norm."""
        if not math.isfinite(squares):
            # The scaler lowers its scale for what it finds itself, and all ranks must lower theirs.
            self._parameters[0].grad.fill_(math.inf)
        scale = self._scaler.get_scale()  # 1 if there is no scaler
        self._scaler.unscale_(self.optimizer)
        norm = math.sqrt(squares) / scale if squares >= 0 else math.nan
        total = torch.tensor(norm, dtype=torch.float64, device=self._parameters[0].device)
        torch.nn.utils.clip_grads_with_norm_(self._parameters, self._limit, total)
        return norm

    def commit(self) -> None:
        """Take the proposed optimizer step, by itself."""
        if self._takes:
            self._scaler.step(self.optimizer)
        self._scaler.update()
        self._forget()

    def abandon(self) -> None:
        """Undo a proposed step, if there is one."""
        if self._scaler.is_enabled():
            # Setting the scale that it has makes the scaler forget that it unscaled gradients.
            self._scaler.update(self._scaler.get_scale())
        self._forget()

    def _forget(self) -> None:
        """Discard what `propose` found; a skipped step may have left it."""
        if isinstance(self.optimizer, Muon):
            self.optimizer.forget()

    def advance_schedule(self) -> None:
        """Advance the learning-rate schedule by one step; a skipped step counts too."""
        self._schedule.step()

    def mark(self) -> None:
        """Remember the place in the schedule for `rewind`."""
        rates = [group["lr"] for group in self.optimizer.param_groups]
        self._marked = self._schedule.state_dict(), rates

    def rewind(self) -> None:
        """Return to the marked place in the schedule."""
        state, rates = self._marked
        self._schedule.load_state_dict(state)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
