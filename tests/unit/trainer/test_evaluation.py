"""Held-out evaluation."""

from __future__ import annotations

import math

from hearth.trainer.evaluation import perplexity_of


def test_a_perplexity_that_is_no_number_stays_none():
    assert perplexity_of(0.0) == 1.0
    assert perplexity_of(1000.0) == math.inf
    assert math.isnan(perplexity_of(math.nan))
