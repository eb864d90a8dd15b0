"""The tables of docs/large-models.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import large_models

PAGE = Path(__file__).parents[3] / "docs/large-models.md"


@pytest.mark.parametrize("cards", [large_models.HOME, large_models.LARGER])
def test_the_page_has_what_the_planner_says_today(cards):
    assert "\n".join(large_models.table(cards)) in PAGE.read_text()


def test_a_32b_in_4_bits_fits_16_and_8_and_8_gb_in_shorter_rows_and_none_of_the_cards():
    fits = [
        large_models.placed("qwen3-32b", {name: card}, 1e4, 512)
        for name, card in large_models.HOME.items()
    ]
    assert fits == [None] * 3
    assert not large_models.placed("qwen3-32b", large_models.HOME, 1e4)
    together = large_models.placed("qwen3-32b", large_models.HOME, 1e4, 640)
    assert together and sum(len(stage.layers) for stage in together.placement.stages) == 64
