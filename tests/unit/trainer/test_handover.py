"""The state of training on its way from one rank to the others."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.several import on_ranks

from hearth.trainer import training_state
from hearth.trainer.training_state import hand_over, put_together, take_apart

TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.int64, torch.bool]
PLAIN = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    st.floats(allow_nan=False),
)
TENSORS = st.builds(
    lambda dtype, shape: torch.arange(math.prod(shape)).reshape(shape).to(dtype),
    st.sampled_from(TYPES),
    st.lists(st.integers(0, 3), max_size=3),
)
STATES = st.recursive(
    st.one_of(PLAIN, TENSORS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.integers(), st.text(max_size=3)), inner, max_size=3),
    ),
    max_leaves=12,
)


def equal(one, other):
    if isinstance(one, torch.Tensor):
        same = isinstance(other, torch.Tensor) and one.dtype == other.dtype
        return same and one.shape == other.shape and torch.equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


@given(STATES)
def test_what_was_taken_apart_is_put_together_again(state):
    tensors = []
    assert equal(put_together(take_apart(state, tensors), tensors), state)


@pytest.mark.parametrize("piece", [1, 40, 1 << 20])
def test_every_rank_gets_the_state_of_the_one_that_gives_it(monkeypatch, piece):
    monkeypatch.setattr(training_state, "_PIECE", piece)
    parameter = torch.nn.Parameter(torch.randn(3, 4))
    optimizer = torch.optim.AdamW([parameter], 0.1)
    parameter.grad = torch.ones(3, 4)
    optimizer.step()
    state = {"optimizer": optimizer.state_dict(), "weights": {"a": parameter}, "nothing": []}

    def rank(world):
        return hand_over(world, 1, state if world.rank == 1 else None)

    for found in on_ranks(3, rank):
        assert equal(found, state | {"weights": {"a": parameter.detach()}})
        torch.optim.AdamW([torch.nn.Parameter(torch.zeros(3, 4))], 0.5).load_state_dict(
            found["optimizer"]
        )


def test_a_rank_that_has_the_state_keeps_no_copy():
    state = {"weights": torch.ones(3), "empty": torch.ones(0)}

    def rank(world):
        return hand_over(world, 0, state if world.rank == 0 else None, lacks=world.rank == 2)

    *others, found = on_ranks(3, rank)
    assert others == [None, None]
    assert equal(found, state)


def test_nothing_that_would_have_to_be_pickled_is_sent():
    with pytest.raises(TypeError, match="set"):
        take_apart({"a": [{1, 2}]}, [])
