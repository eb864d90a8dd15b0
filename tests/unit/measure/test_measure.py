"""Measuring a rank: the share of its computer that it may use meanwhile."""

from __future__ import annotations

import pytest

from hearth.measure.__main__ import part_of_free


@pytest.mark.parametrize(
    ("environment", "part"),
    [
        ({}, 8.0),  # measured by hand
        ({"LOCAL_WORLD_SIZE": "1"}, 8.0),
        ({"LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "3"}, 2.0),
    ],
)
def test_ranks_that_are_measured_at_once_share_the_free_memory(environment, part):
    assert part_of_free(10.0, environment) == pytest.approx(part)
