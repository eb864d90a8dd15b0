"""Losses of preferences on numbers, without a model."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hearth.config import Settings
from hearth.data.rows import IGNORED, Batch
from hearth.trainer.answers import answers_of
from hearth.trainer.objective import MicroRows, StepCounts
from hearth.trainer.preferences import DPO, KTO, ORPO

LENGTHS = st.lists(st.integers(2, 6), min_size=2, max_size=8).filter(
    lambda each: len(each) % 2 == 0
)


class TokensAreNumbers:
    """A stand-in of a model: the log-probability of token t is -t / 100."""

    def token_log_probs(self, batch):
        labels = torch.tensor(batch.labels, dtype=torch.float64)
        return torch.where(labels == IGNORED, 0.0, -labels / 100).requires_grad_()


class OneRow:
    """A stand-in of rows: one row that holds all documents, and padding at its end."""

    def __init__(self, lengths, padding=3):
        self._lengths = [*lengths, padding]
        self.liked = np.arange(len(lengths)) % 2 == 0
        size = sum(self._lengths)
        self._ids = np.arange(1, size + 1)[None]
        self._labels = np.full_like(self._ids, IGNORED)
        at = 0
        for length in lengths:  # the first token of each is its prompt
            self._labels[0, at + 1 : at + length] = self._ids[0, at + 1 : at + length]
            at += length
        self.liked_tokens = np.array([sum(n - 1 for n in lengths[0::2])])
        self.liked_lengths = self.liked_tokens

    def batch(self, numbers):
        positions = np.concatenate([np.arange(length) for length in self._lengths])[None]
        return Batch(self._ids, self._labels, positions, self._lengths)

    def pieces_of(self, numbers):
        return np.arange(len(self.liked))


class Zero:
    """A stand-in of a reference that finds every answer certain."""

    def of(self, rows, mismatched=False):
        return torch.zeros(len(rows.liked), dtype=torch.float64)


def judged(objective, rows, **counts):
    part = MicroRows(rows, np.array([0]))
    of_rows = objective.counts(rows, np.array([0]))
    of_rows = StepCounts(**{**vars(of_rows), **counts})
    return objective.loss(TokensAreNumbers(), part, of_rows), of_rows


@given(LENGTHS)
def test_each_answer_has_the_sum_over_its_learned_tokens(lengths):
    rows = OneRow(lengths)
    found = answers_of(TokensAreNumbers(), rows.batch([0]))
    starts = np.cumsum([0, *lengths])
    expected = [-sum(range(a + 2, b + 1)) / 100 for a, b in itertools.pairwise(starts)]
    assert found.log_probs.tolist() == pytest.approx(expected)
    assert found.tokens.tolist() == [length - 1 for length in lengths]


@given(LENGTHS, st.floats(0, 0.4), st.floats(0.01, 2))
def test_conservative_dpo_is_the_mean_of_both_directions(lengths, smooth, beta):
    rows = OneRow(lengths)
    settings = Settings(model="any", objective="dpo", beta=beta, label_smoothing=smooth)
    loss, counts = judged(DPO(settings, Zero()), rows)
    values = answers_of(TokensAreNumbers(), rows.batch([0])).log_probs.tolist()
    margins = [beta * (a - b) for a, b in zip(values[0::2], values[1::2], strict=True)]
    expected = [
        (1 - smooth) * math.log1p(math.exp(-m)) + smooth * math.log1p(math.exp(m)) for m in margins
    ]
    assert loss.value.item() == pytest.approx(np.mean(expected))
    assert counts.weight == len(margins)


@pytest.mark.parametrize("objective", [DPO, ORPO, KTO])
def test_watched_means_are_of_the_right_answers(objective):
    rows = OneRow([2, 3, 4, 2])
    settings = Settings(model="any", objective=objective.__name__.lower())
    made = objective(settings, Zero())
    loss, counts = judged(made, rows)
    means = made.watched(loss.sums, counts)
    values = answers_of(TokensAreNumbers(), rows.batch([0])).log_probs
    assert means["chosen_log_prob"] == pytest.approx(values[0::2].mean().item())
    assert means["rejected_log_prob"] == pytest.approx(values[1::2].mean().item())
    assert 0 <= means["reward_accuracy"] <= 1


def test_kto_is_indifferent_to_an_answer_at_the_mean_of_the_mismatched_ones():
    rows = OneRow([2, 2])
    settings = Settings(model="any", objective="kto", beta=0.5)
    made = KTO(settings, Zero())
    ratios = [3.0, -1.0]
    counts = made.complete(
        made.counts(rows, np.array([0])), rows, np.array([0]), lambda: np.array(ratios), list
    )
    assert counts.kl == pytest.approx(np.mean(ratios))
    low = made.complete(counts, rows, np.array([0]), lambda: np.array([-3.0, 1.0]), list)
    assert low.kl == 0


def test_odds_near_certainty_keep_a_gradient():
    settings = Settings(model="any", objective="orpo")
    rows = OneRow([2, 2])

    class NearlyCertain(TokensAreNumbers):
        def token_log_probs(self, batch):
            self.values = (super().token_log_probs(batch) * 1e-9).detach().requires_grad_()
            return self.values

    model, made = NearlyCertain(), ORPO(settings)
    part = MicroRows(rows, np.array([0]))
    loss = made.loss(model, part, made.counts(rows, np.array([0]))).value
    loss.backward()
    assert loss.isfinite()
    assert model.values.grad.isfinite().all()
