"""Objectives of preferences: DPO, ORPO and KTO, as sums over pairs or judged answers.

The log-probability of an answer is the sum over its learned tokens. A ratio is that log-probability
minus the reference's, which is computed once before the first step (see `reference`); a reward is
`beta` times a ratio. In rows of pairs each chosen answer is followed by the rejected one.

| objective | loss of a pair, or of a judged answer | source |
|---|---|---|
| dpo | -log sigmoid(margin of the rewards) | arXiv:2305.18290 |
| `label_smoothing` | that much of it with the margin reversed | the same authors' cDPO |
| `dpo_loss: ipo` | (margin of the ratios per token - 1 / (2 beta)) squared | arXiv:2310.12036 |
| `sft_weight` | besides, the mean loss of a chosen token (RPO) | arXiv:2404.19733 |
| orpo | mean loss of a chosen token - beta log sigmoid(log odds ratio) | arXiv:2403.07691 |
| kto | 1 - sigmoid(reward - beta KL); of a rejected answer with the signs reversed; KL: see \
`StepCounts` | arXiv:2402.01306 |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from hearth.config import Settings
from hearth.data.rows import Rows
from hearth.model.backend import TrainableModel
from hearth.trainer.answers import Answers, answers_of
from hearth.trainer.objective import Loss, MicroRows, NextToken, Objective, StepCounts
from hearth.trainer.reference import Reference

SUMS = ("chosen_reward", "rejected_reward", "right", "chosen", "rejected")
"""Sums over answers, as in `StepSum`: rewards, answers judged rightly, log-probabilities."""


class _Judged(NamedTuple):
    """The answers of a micro-batch with their losses.

    Attributes:
        losses: (pairs,) or (answers,), the loss of each.
        extra: further losses that are divided by a count of tokens, already divided.
        rewards: (answers,).
        right: (pairs,) or (answers,): 1 if the rewards are as the labels say, 1/2 on a tie.
    """

    answers: Answers
    losses: torch.Tensor
    extra: torch.Tensor | float
    rewards: torch.Tensor
    right: torch.Tensor


@dataclass(frozen=True)
class _Preferences(Objective):
    """The common part of the objectives of preferences; a subclass has `_judge`.

    `reference` has the log-probabilities of the answers before the first step.
    """

    settings: Settings
    reference: Reference | None = None
    unit: str = field(default="pairs", init=False)
    sums: tuple[str, ...] = field(default=SUMS, init=False)

    def counts(self, rows: Rows, numbers: np.ndarray) -> StepCounts:
        """Return the pairs or judged answers of these rows, and the tokens of the chosen ones."""
        chosen = _chosen(MicroRows(rows, numbers))
        likes = int(chosen.sum())
        return StepCounts(
            likes if self.unit == "pairs" else len(chosen),
            likes,
            len(chosen) - likes,
            int(rows.liked_tokens[numbers].sum()),
            int(rows.liked_lengths[numbers].sum()),
        )

    def loss(self, model: TrainableModel, part: MicroRows, counts: StepCounts) -> Loss:
        """Return the summed losses of `part` over the step's counts."""
        judged = self._judge(model, part, counts)
        value = judged.losses.sum() / counts.weight + judged.extra
        return Loss(value, _sums_of(judged, _chosen(part)))

    def evaluate(
        self, model: TrainableModel, part: MicroRows, counts: StepCounts
    ) -> Sequence[float]:
        """Return this part of the mean loss, the loss of chosen tokens, and `sums`."""
        judged = self._judge(model, part, counts)
        value = judged.losses.sum() / counts.weight + judged.extra
        sums = _sums_of(judged, _chosen(part))
        return [value.item(), -sums[SUMS.index("chosen")], *sums]

    def means(self, sums: Sequence[float], counts: StepCounts) -> dict[str, float]:
        """Return mean loss, loss of a chosen token, and those of `rewards_of`."""
        value, nll, *further = sums
        nll = nll / counts.learned if counts.learned else float("nan")
        return {"loss": value, "nll": nll, **self.watched(further, counts)}

    def watched(self, sums: Sequence[float], counts: StepCounts) -> dict[str, float]:
        """Return the means of `sums`: rewards, log-probabilities, and the part judged rightly."""
        likes, others = max(1, counts.chosen), max(1, counts.rejected)
        divisors = (likes, others, max(1, counts.weight), likes, others)
        names = (
            *("chosen_reward", "rejected_reward", "reward_accuracy"),
            *("chosen_log_prob", "rejected_log_prob"),
        )
        return {
            name: each / divisor for name, each, divisor in zip(names, sums, divisors, strict=True)
        }

    def _judge(self, model: TrainableModel, part: MicroRows, counts: StepCounts) -> _Judged:
        """Compute the answers of `part` and their losses."""
        raise NotImplementedError

    def _ratios(self, part: MicroRows, log_probs: torch.Tensor) -> torch.Tensor:
        """Return the log-ratios of the answers of `part` to the reference."""
        assert self.reference
        table = self.reference.of(part.rows)[part.rows.pieces_of(part.numbers)]
        return log_probs - table.to(log_probs)


def _sums_of(judged: _Judged, liked: np.ndarray) -> list[float]:
    """Return `SUMS` of a micro-batch, whose chosen answers are `liked`."""
    values = judged.answers.log_probs
    chosen = torch.as_tensor(liked, device=values.device)
    found = (
        judged.rewards[chosen].sum(),
        judged.rewards[~chosen].sum(),
        judged.right.sum(),
        values[chosen].sum(),
        values[~chosen].sum(),
    )
    return torch.stack([each.detach().double() for each in found]).tolist()


def _pairs(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values of the chosen and of the rejected answers of pairs."""
    return values[0::2], values[1::2]


def _chosen(part: MicroRows) -> np.ndarray:
    """Return which answers of `part` are chosen, or judged good, bool (answers,)."""
    return part.rows.liked[part.rows.pieces_of(part.numbers)]


def _above(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return 1 where `one` is larger, 0 where it is smaller, 1/2 on a tie."""
    return 0.5 + 0.5 * torch.sign(one - other).detach()


class DPO(_Preferences):
    """Direct preference optimisation, with the forms of the settings."""

    def _judge(self, model: TrainableModel, part: MicroRows, counts: StepCounts) -> _Judged:
        settings = self.settings
        answers = answers_of(model, part.batch)
        ratios = self._ratios(part, answers.log_probs)
        rewards = settings.beta * ratios
        good, bad = _pairs(rewards)
        if settings.dpo_loss == "ipo":
            good_mean, bad_mean = _pairs(ratios / answers.tokens)
            losses = (good_mean - bad_mean - 1 / (2 * settings.beta)).square()
        else:
            smooth = settings.label_smoothing
            losses = -(1 - smooth) * F.logsigmoid(good - bad) - smooth * F.logsigmoid(bad - good)
        extra: torch.Tensor | float = 0.0
        if settings.sft_weight:
            extra = -settings.sft_weight * _pairs(answers.log_probs)[0].sum() / counts.learned
        return _Judged(answers, losses, extra, rewards, _above(good, bad))


class ORPO(_Preferences):
    """Odds-ratio preference optimisation, without a reference.

    As in the authors' code, the loss of chosen conversations includes their prompts.
    """

    def _judge(self, model: TrainableModel, part: MicroRows, counts: StepCounts) -> _Judged:
        answers = answers_of(model, part.batch, whole=True)
        means = answers.log_probs / answers.tokens
        good, bad = _pairs(means)
        log_odds = (good - bad) - (_log_of_rest(good) - _log_of_rest(bad))
        losses = -self.settings.beta * F.logsigmoid(log_odds)
        extra = -_pairs(answers.whole)[0].sum() / counts.whole
        return _Judged(answers, losses, extra, self.settings.beta * means, _above(good, bad))


def _log_of_rest(log_prob: torch.Tensor) -> torch.Tensor:
    """Return log(1 - p) for log p, also near 0 and 1 (Mächler 2012, log1mexp)."""
    near_one = log_prob > -0.6931471805599453
    return torch.where(
        near_one,
        torch.log(-torch.expm1(torch.where(near_one, log_prob, -1.0))),
        torch.log1p(-torch.exp(torch.where(near_one, -1.0, log_prob))),
    )


@dataclass(frozen=True)
class KTO(_Preferences):
    """Kahneman-Tversky optimisation, of answers that are judged one by one."""

    unit: str = field(default="judged answers", init=False)

    def complete(
        self,
        counts: StepCounts,
        rows: Rows,
        own: np.ndarray,
        mismatched: Callable[[], np.ndarray],
        of_all: Callable[[list[float]], list[float]],
    ) -> StepCounts:
        """Return the counts with the mean log-ratio of the mismatched answers of all ranks."""
        assert self.reference
        table = self.reference.of(rows, mismatched=True)[rows.pieces_of(own)]
        ratios = of_all((mismatched() - table.numpy()).tolist())
        return replace(counts, kl=max(0.0, math.fsum(ratios) / max(1, len(ratios))))

    def _judge(self, model: TrainableModel, part: MicroRows, counts: StepCounts) -> _Judged:
        answers = answers_of(model, part.batch)
        rewards = self.settings.beta * self._ratios(part, answers.log_probs)
        chosen = torch.as_tensor(_chosen(part), device=rewards.device)
        above = rewards - self.settings.beta * counts.kl
        signed = torch.where(chosen, above, -above)
        losses = torch.sigmoid(-signed)  # 1 - sigmoid(signed)
        right = _above(signed, torch.zeros_like(signed))
        return _Judged(answers, losses, 0.0, rewards, right)


def choose_objective(settings: Settings, reference: Reference | None) -> Objective:
    """Return the objective of a run; `reference` is needed by those that compare with one."""
    if settings.objective == "orpo":
        return ORPO(settings)
    if reference is None:
        return NextToken()
    return (KTO if settings.objective == "kto" else DPO)(settings, reference)
