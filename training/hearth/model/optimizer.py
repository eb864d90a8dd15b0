"""Optimizers: their choice, the learning-rate schedule, and Muon.

Muon is for the hidden layers: momentum, orthogonalised matrix by matrix; AdamW is for the rest.
The method is Keller Jordan's (https://kellerjordan.github.io/posts/muon). Its rate is scaled by 0.2
√max(rows, columns), so that learning rate and weight decay of AdamW fit both parts (Liu et al.
2025, "Muon is Scalable for LLM Training", arXiv:2502.16982).

torch.optim.Muon is not used for two reasons. It orthogonalises in bf16, which turns a rounding
error of the gradient's sum, 1e-7, into 1e-2 of the update, so that each split would give another
result; here it is 3e-6. And every rank would orthogonalise every matrix: twice the necessary work,
and unlike processors round matrix products differently, so that their weights would drift apart.
Here each matrix is orthogonalised by one rank, for all.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hearth.base.errors import ConfigError
from hearth.config import Settings
from hearth.model.backend import TrainableModel
from hearth.plan.steps import rate_at

_MOMENTUM = 0.95
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic Newton-Schulz iteration, with the steepest slope at zero (Jordan)."""
_ITERATIONS = 5
_EPSILON = 1e-7
_LIKE_ADAMW = 0.2
"""Root mean square of AdamW's updates, which Muon's are scaled to (Liu et al.)."""


class Muon(torch.optim.Optimizer):
    """Muon over `matrices` beside `adamw` over the rest, whose rate and weight decay it takes.

    Args:
        rank: this rank's number.
        share: sums a tensor over all ranks, in place.

    Attributes:
        shares: relative work of each rank, the same on all ranks; 0 for none.
    """

    def __init__(
        self,
        matrices: Sequence[torch.nn.Parameter],
        adamw: torch.optim.AdamW,
        rank: int,
        share: Callable[[torch.Tensor], object],
    ) -> None:
        (others,) = adamw.param_groups
        hidden = {"params": list(matrices)} | {
            name: others[name] for name in ("lr", "weight_decay")
        }
        super().__init__([hidden, others], {})
        self._adamw = adamw
        self._rank, self._share = rank, share
        self.shares: Sequence[int] = (1,)
        self._updates: Sequence[torch.Tensor] | None = None

    @property
    def bytes(self) -> int:
        """Size of the updates that the ranks exchange in a step."""
        return sum(m.numel() * m.element_size() for m in self.param_groups[0]["params"])

    @torch.no_grad()
    def prepare(self) -> None:
        """Compute the matrices' updates for the next `step`, each on one rank for all.

        All ranks call this with the same gradients. It changes neither weights nor momenta, so that
        `forget` undoes it if another rank is lost meanwhile.
        """
        matrices = self.param_groups[0]["params"]
        sizes = [matrix.numel() for matrix in matrices]
        flat = matrices[0].new_zeros(sum(sizes))
        owners = divide([cost(matrix.shape) for matrix in matrices], self.shares)
        for matrix, update, owner in zip(matrices, flat.split(sizes), owners, strict=True):
            if owner == self._rank:
                momentum = self._momentum(matrix).lerp(matrix.grad, 1 - _MOMENTUM)
                found = orthogonal(matrix.grad.lerp(momentum, _MOMENTUM))
                update.view_as(matrix).copy_(found)
        self._share(flat)
        self._updates = flat.split(sizes)

    def forget(self) -> None:
        """Discard prepared updates."""
        self._updates = None

    @torch.no_grad()
    def step(self) -> None:
        """Take one step with the prepared updates; prepare them first if they are missing."""
        if self._updates is None:
            self.prepare()
        hidden, others = self.param_groups
        # Of this optimizer's own state, so that schedule and checkpoints see one optimizer.
        self._adamw.param_groups, self._adamw.state = [others], self.state
        self._adamw.step()

        rate = hidden["lr"]
        for matrix, update in zip(hidden["params"], self._updates, strict=True):
            self.state[matrix]["momentum"] = self._momentum(matrix).lerp_(
                matrix.grad, 1 - _MOMENTUM
            )
            matrix.mul_(1 - rate * hidden["weight_decay"])
            scale = _LIKE_ADAMW * max(matrix.shape) ** 0.5
            matrix.add_(update.view_as(matrix), alpha=-rate * scale)
        self._updates = None

    def _momentum(self, matrix: torch.nn.Parameter) -> torch.Tensor:
        """Return the momentum of `matrix`, zeros before its first step."""
        known = self.state[matrix].get("momentum") if matrix in self.state else None
        return torch.zeros_like(matrix) if known is None else known


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Return `matrix` with all singular values moved to about 1 (0.7 to 1.2); zero stays zero."""
    a, b, c = _COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    found = matrix.T if tall else matrix
    found = found / found.norm().clamp(min=_EPSILON)
    for _ in range(_ITERATIONS):
        gram = found @ found.T
        found = torch.addmm(found, torch.addmm(gram, gram, gram, beta=b, alpha=c), found, beta=a)
    return found.T if tall else found


def cost(shape: torch.Size) -> int:
    """Return the multiplications of an iteration of `orthogonal` on a matrix of this shape."""
    small, large = sorted(shape)
    return small * small * (2 * large + small)


def divide(costs: Sequence[int], shares: Sequence[int]) -> list[int]:
    """Return the rank that computes each matrix, so that the costs are in proportion to `shares`.

    Each rank gets neighbouring matrices; one with the share 0 gets none.
    """
    ends = np.cumsum(shares) / sum(shares)
    middles = (np.cumsum(costs) - np.asarray(costs) / 2) / sum(costs)
    return np.searchsorted(ends, middles, side="right").tolist()


@dataclass(frozen=True)
class Means:
    """Hardware and libraries of one rank that decide on the optimizer."""

    node: str
    gpu: bool
    bitsandbytes: bool


def means_here(node: str, device: torch.device) -> Means:
    """Return the `Means` of this rank, on `node`."""
    installed = importlib.util.find_spec("bitsandbytes") is not None
    return Means(node, device.type == "cuda", installed)


def choose_optimizer(wanted: str, ranks: Sequence[Means], averaged: bool = False) -> str:
    """Return the optimizer's name without `auto`, one choice for all ranks.

    `auto` takes 8 bits only if all ranks have an NVIDIA GPU, since ranks that round quantised state
    differently drift apart, and never if the ranks' state is `averaged`.

    Raises `ConfigError` naming the nodes without bitsandbytes if the user chose 8 bits.
    """
    lacking = [rank.node for rank in ranks if not rank.bitsandbytes]
    if wanted == "adamw_8bit" and lacking:
        raise ConfigError(
            f"optimizer: adamw_8bit needs bitsandbytes, which is not installed on "
            f"{', '.join(dict.fromkeys(lacking))}; install it there, leave such nodes out "
            "(-e nodes=…), or start a new run with optimizer=adamw (a resumed run keeps its "
            "optimizer)"
        )
    if wanted == "auto":
        able = not averaged and not lacking and all(rank.gpu for rank in ranks)
        return "adamw_8bit" if able else "adamw"
    return wanted


def make_optimizer(
    chosen: str,
    settings: Settings,
    model: TrainableModel,
    rank: int,
    share: Callable[[torch.Tensor], object],
) -> torch.optim.Optimizer:
    """Return the `chosen` optimizer for what `model` trains; `rank` and `share` as in `Muon`."""
    learned = [parameter for _, parameter in model.trainable()]
    rate = settings.learning_rate
    how = {"betas": (0.9, settings.beta2), "weight_decay": settings.weight_decay}
    if chosen == "adamw_8bit":
        from bitsandbytes.optim import AdamW8bit

        return AdamW8bit(learned, rate, **how)
    if chosen == "muon":
        hidden = model.hidden_matrices()
        among = {id(matrix) for matrix in hidden}
        others = [parameter for parameter in learned if id(parameter) not in among]
        return Muon(hidden, torch.optim.AdamW(others, rate, **how), rank, share)
    return torch.optim.AdamW(learned, rate, **how)


def make_schedule(
    settings: Settings, optimizer: torch.optim.Optimizer, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """Return the learning-rate schedule over `steps` global steps, independent of the ranks."""

    def rate(step: int) -> float:
        return rate_at(step, steps, settings)

    return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
