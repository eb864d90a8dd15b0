"""The one sum of a step: its payload, its counts and its exactness."""

from __future__ import annotations

import pytest
import torch
from support.several import on_ranks

from hearth.trainer.exchange import Exchange

FLAGS = {"stop": False, "keep": False, "pause": False}
TOKENS = (1 << 24) - 1
"""The largest count of 24 bits, which takes three pieces of 8."""


@pytest.mark.parametrize("how", [{}, {"compress": "bf16"}, {"keeps": True}])
@pytest.mark.parametrize("size", [1, 2])
def test_counts_are_exact_and_the_bytes_are_those_that_travel(how, size):
    def rank(world):
        travelled, sums = [], world.sum_
        world.sum_ = lambda each: (travelled.append(each.numel() * each.element_size()), sums(each))
        parameter = torch.nn.Parameter(torch.zeros(10))
        exchange = Exchange([parameter], world, **how)
        for _ in range(2):
            parameter.grad.fill_(1.0)
            summed = exchange.run(FLAGS, tokens=TOKENS - world.rank, loss=0.5)
        assert summed.tokens == [TOKENS - rank for rank in range(size)]
        assert summed.loss == size / 2
        assert travelled == [exchange.bytes] * 2
        assert exchange.given == (2 * exchange.bytes if size > 1 else 0)
        assert parameter.grad.tolist() == [1.0 if "keeps" in how else size] * 10

    on_ranks(size, rank)
