"""Facts that all ranks must share."""

from __future__ import annotations

import pytest
from support.several import on_ranks

from hearth.base.errors import HearthError
from hearth.base.software import software_here
from hearth.ranks.world import agree


def test_facts_that_differ_are_named_with_their_nodes_on_every_rank():
    facts = [
        {"torch": "2.13", "peft": "0.21.2"},
        {"torch": "2.13", "peft": "0.21.2", "unsloth": "1"},
        {"torch": "2.13", "peft": "0.20.0", "unsloth": "2"},
    ]

    def rank(world):
        with pytest.raises(HearthError) as refused:
            agree(world, facts[world.rank])
        return refused.value.findings

    for peft, unsloth in on_ranks(3, rank):
        assert {"peft:", "node2", "0.20.0", "node0", "0.21.2"} <= {*words(peft)}
        assert {"unsloth:", "node2", "2", "node1", "1"} <= {*words(unsloth)}


def words(text: str) -> list[str]:
    return text.replace("(", " ").replace(")", " ").replace(",", " ").replace(";", " ").split()


def test_the_software_of_a_rank_is_what_is_installed_without_its_variant():
    found = software_here()
    assert {"torch", "transformers", "peft", "Hearth"} <= found.keys()
    assert "+" not in found["torch"]
    assert "unsloth" not in found
