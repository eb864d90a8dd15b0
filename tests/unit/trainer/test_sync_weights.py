"""Ranks begin with rank 0's weights; only those that differ travel."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.several import on_ranks

from hearth.trainer.replicas import sync_weights


def weights(changed=()):
    """Return a few tensors of several types; those numbered `changed` have other values."""
    generator = torch.Generator().manual_seed(1)
    drawn = [torch.randn(shape, generator=generator) for shape in ((3, 4), (5,), (), (2, 2, 2))]
    drawn = [drawn[0], drawn[1].double(), drawn[2], drawn[3].bfloat16()]
    for number in changed:
        drawn[number] = drawn[number] + 1
    return [torch.nn.Parameter(tensor) for tensor in drawn]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=3))
def test_all_ranks_have_rank_0s_weights_and_only_what_differed_was_sent(changed):
    def act(world):
        own = weights(changed[world.rank])
        return own, sync_weights(own, world), len(world.sent)

    wanted = weights(changed[0])
    differing = {n for other in changed for n in other ^ changed[0]}
    for own, sent, travelled in on_ranks(len(changed), act):
        assert all(torch.equal(a, b) for a, b in zip(own, wanted, strict=True))
        assert all(parameter.requires_grad for parameter in own)
        assert sent == travelled == len(differing)
