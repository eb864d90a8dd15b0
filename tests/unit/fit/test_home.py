"""A model over the ranks of a home: as much memory as the settings need, links as measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hearth.base.errors import ModelError
from hearth.config import Settings, load_preset
from hearth.config.shape import FAMILIES
from hearth.fit.capacity import GIB, Room
from hearth.fit.home import Candidate, Links, home_of, memory_warnings, too_small, unplaceable
from hearth.model import divided
from hearth.plan.place import place

SHAPE = load_preset("llama2-7b").shape
SETTINGS = Settings(model="any", parallel="pipeline", gradient_checkpointing=True)
HOME = [Candidate(node, Room(size * GIB, "RTX")) for node, size in (("desk", 9), ("attic", 7))]


def test_a_model_larger_than_any_card_is_placed_over_two():
    found = place(home_of(SETTINGS, SHAPE, HOME), 32, 16)
    layers = {stage.rank: len(stage.layers) for stage in found.placement.stages}
    assert layers[0] + layers[1] == 32
    assert layers[0] > layers[1] > 8


def test_only_kinds_whose_stages_are_tested_count_as_divisible():
    kinds = {kind for kind, family in FAMILIES.items() if family.divides}
    assert kinds == FAMILIES.keys() & divided.FAMILIES.keys()
    vision = replace(SHAPE, model_type="gemma3")
    assert unplaceable(SETTINGS, SHAPE, HOME) == ""
    assert "gemma3" in unplaceable(SETTINGS, vision, HOME)


def test_a_rank_without_room_for_a_layer_is_named():
    tiny = Candidate("shed", Room(GIB // 2, "RTX"))
    assert too_small(SETTINGS, SHAPE, [*HOME, tiny]) == ["shed"]


def test_the_lacking_memory_is_named():
    with pytest.raises(ModelError, match=r"32 layers .*desk.*attic.* GiB more"):
        place(home_of(SETTINGS, SHAPE, with_room(4, 4)), 32, 16)


def with_room(*gib):
    return [
        replace(each, room=Room(size * GIB, "RTX")) for each, size in zip(HOME, gib, strict=True)
    ]


CARELESS = SETTINGS.model_copy(update={"fit": "warn"})


def test_where_fit_only_warns_what_is_lacking_is_spread_over_all_by_their_memory():
    small = with_room(6, 4)
    home = home_of(CARELESS, SHAPE, small)
    assert home.rooms == [6 * GIB * home.enlarged, 4 * GIB * home.enlarged]
    layers = {stage.rank: len(stage.layers) for stage in place(home, 32, 16).placement.stages}
    assert layers[0] > layers[1]
    assert "32 layers" in unplaceable(CARELESS, SHAPE, small)
    (warning,) = memory_warnings(home)
    assert f"{home.enlarged:.1f} times" in warning


def test_memory_that_suffices_counts_as_it_is_also_where_fit_only_warns():
    home = home_of(CARELESS, SHAPE, HOME)
    assert home.rooms == [9 * GIB, 7 * GIB]
    assert not memory_warnings(home)


def test_a_typed_micro_batch_that_does_not_fit_is_tried_where_fit_only_warns():
    typed, home = {"micro_batch": 16, "gradient_checkpointing": False}, with_room(14, 12)
    with pytest.raises(ModelError, match="16 rows"):
        place(home_of(SETTINGS.model_copy(update=typed), SHAPE, home), 32, 16, 16)
    enlarged = home_of(CARELESS.model_copy(update=typed), SHAPE, home)
    assert memory_warnings(enlarged)
    assert place(enlarged, 32, 16, 16).micro_batch == 16


def test_activations_travel_in_the_precision_of_the_run_and_links_count_between_nodes_only():
    links = Links({"desk": {"attic": 1000.0}}, {"desk": {"attic": 0.4}})
    home = home_of(SETTINGS, SHAPE, [*HOME, HOME[1]], links)
    of_row = 1024 * 4096 * 2 * 8 / 1e9
    assert home.links[0] == pytest.approx([0.0, of_row, of_row])
    assert home.links[1][2] == home.message(1, 2, 4) == 0.0
    assert home.message(0, 1, 4) == pytest.approx(4 * of_row + 0.2e-3)
