"""Numbers that torch draws after a seed."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from hearth.model.noise import seed_torch


@given(st.integers(-(2**63), 2**64 - 1))
def test_torch_draws_what_it_would_after_its_own_function(seed):
    torch.manual_seed(seed)
    expected = torch.rand(8)
    seed_torch(seed, torch.device("cpu"))
    assert torch.equal(torch.rand(8), expected)
