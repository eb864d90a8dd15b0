"""Random numbers of a forward pass: after a seed, and noise on embeddings, drawn by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hearth.data.rows import Batch
from hearth.model.noise import Noise, seed_torch


@given(st.integers(-(2**63), 2**64 - 1))
def test_torch_draws_what_it_would_after_its_own_function(seed):
    torch.manual_seed(seed)
    expected = torch.rand(8)
    seed_torch(seed, torch.device("cpu"))
    assert torch.equal(torch.rand(8), expected)


WIDTH, ALPHA = 64, 5.0


def batch(*rows: tuple[int, ...]) -> Batch:
    """Return rows of documents of these lengths, padded to the longest row."""
    longest = max(map(sum, rows))
    padded = [(*row, longest - sum(row)) if sum(row) < longest else row for row in rows]
    ids = np.zeros((len(rows), longest), dtype=np.int64)
    return Batch(ids, ids, ids, [length for row in padded for length in row])


@pytest.fixture
def embedded():
    """Return a function that gives the noise (rows, length, width) of a batch with these seeds."""
    layer = torch.nn.Embedding(1, WIDTH, dtype=torch.float64)
    layer.weight.data.zero_()
    noise = Noise(layer, ALPHA)

    def embed(rows: Batch, *seeds: int, joined: bool = False) -> torch.Tensor:
        if seeds:
            noise.draw_for(rows, seeds)
        ids = torch.from_numpy(rows.input_ids)
        return layer(ids.reshape(1, -1) if joined else ids).detach()

    return embed


def test_the_noise_of_a_row_depends_on_its_seed_alone(embedded):
    alone = embedded(batch((3, 4)), -7)[0]
    beside = embedded(batch((12,), (3, 4)), 8, -7)
    assert torch.equal(beside[1, :7], alone)
    joined = embedded(batch((12,), (3, 4)), 8, -7, joined=True)
    assert torch.equal(joined.reshape(beside.shape), beside)
    assert not torch.equal(embedded(batch((3, 4)), -6)[0], alone)


def test_it_is_uniform_up_to_the_limit_of_its_document(embedded):
    found = embedded(batch((100, 400)), 1)[0]
    for part, length in ((found[:100], 100), (found[100:], 400)):
        limit = ALPHA / math.sqrt(length * WIDTH)
        assert 0.99 * limit < part.abs().max() <= limit
        assert part.std() == pytest.approx(limit / math.sqrt(3), rel=0.05)
        assert part.mean().abs() < 0.05 * limit


def test_it_is_added_once_and_only_where_it_was_drawn(embedded):
    rows = batch((5,))
    assert embedded(rows).abs().max() == 0
    assert embedded(rows, 1).abs().max() > 0
    assert embedded(rows).abs().max() == 0
