"""A model over the ranks of a home: as much memory as the settings need, links as measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hearth.base.errors import ModelError
from hearth.config import Settings, load_preset
from hearth.config.shape import FAMILIES
from hearth.fit.capacity import GIB, Room
from hearth.fit.home import Candidate, Links, home_of, too_small, unplaceable
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


def test_the_lacking_memory_is_named_unless_fit_only_warns():
    with pytest.raises(ModelError, match=r"32 layers .*desk .*attic .* GiB more"):
        place(
            home_of(SETTINGS, SHAPE, [replace(each, room=Room(4 * GIB, "RTX")) for each in HOME]),
            32,
            16,
        )
    careless = SETTINGS.model_copy(update={"fit": "warn"})
    small = [replace(each, room=Room(4 * GIB, "RTX")) for each in HOME]
    assert place(home_of(careless, SHAPE, small), 32, 16).placement.layers == 32


def test_activations_travel_in_the_precision_of_the_run_and_links_count_between_nodes_only():
    links = Links({"desk": {"attic": 1000.0}}, {"desk": {"attic": 0.4}})
    home = home_of(SETTINGS, SHAPE, [*HOME, HOME[1]], links)
    of_row = 1024 * 4096 * 2 * 8 / 1e9
    assert home.links[0] == pytest.approx([0.0, of_row, of_row])
    assert home.links[1][2] == home.message(1, 2, 4) == 0.0
    assert home.message(0, 1, 4) == pytest.approx(4 * of_row + 0.2e-3)
