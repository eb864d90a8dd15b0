"""Ranks in a group: facts that all must share, and orders that come late."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.several import on_ranks
from support.supervisors import free_port
from support.waiting import HANG

from hearth.base.errors import HearthError
from hearth.node.facts import software_here
from hearth.ranks.alarm import GroupBroken
from hearth.ranks.control import Control
from hearth.ranks.control_protocol import Form, Interrupt
from hearth.ranks.world import World, agree


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


def test_where_training_goes_on_only_who_differs_from_it_has_to_go():
    def rank(world):
        with pytest.raises((HearthError, GroupBroken)) as refused:
            agree(world, {"torch": "2.12" if world.rank == 0 else "2.13"}, source=1)
        return type(refused.value).__name__, words(str(refused.value))

    kinds, told = zip(*on_ranks(3, rank), strict=True)
    assert kinds == ("HearthError", "GroupBroken", "GroupBroken")
    assert all({"torch:", "node0", "2.12", "node1", "2.13"} <= {*each} for each in told)


def words(text: str) -> list[str]:
    return text.replace("(", " ").replace(")", " ").replace(",", " ").replace(";", " ").split()


def test_the_software_of_a_rank_is_what_is_installed_without_its_variant():
    found = software_here()
    assert {"torch", "transformers", "peft", "Hearth"} <= found.keys()
    assert "+" not in found["torch"]
    assert "unsloth" not in found


@pytest.fixture
def pair() -> Iterator[list[World]]:
    """Two ranks under supervisors that say nothing."""
    sockets = [socket.socketpair() for _ in range(2)]
    worlds = [
        World(rank, 2, node=node, control=Control(own, ("tower", "laptop")))
        for rank, (node, (_, own)) in enumerate(zip(("tower", "laptop"), sockets, strict=True))
    ]
    yield worlds
    for world, (theirs, _) in zip(worlds, sockets, strict=True):
        world.drop()
        world.control.close()
        theirs.close()


def test_an_interrupt_that_comes_late_leaves_the_next_group_alone(pair):
    order = Form(5, ("tower", "laptop"), "127.0.0.1", free_port(), ("127.0.0.1",), False, key="key")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda world: world.form(order), pair, timeout=HANG))
        # The thread that reads orders found it to be of the group of then, and was held up.
        pair[0].control.on_interrupt(Interrupt(4, "laptop was lost"))
        found = pool.map(lambda world: world.gather(world.rank), pair, timeout=HANG)
        assert list(found) == [[0, 1], [0, 1]]
