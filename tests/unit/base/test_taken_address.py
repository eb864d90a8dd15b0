"""Two machines with one address, as the machines of the home see them."""

from __future__ import annotations

import json

import pytest
from support.facts import assert_names

from hearth.base import taken_address
from hearth.base.taken_address import AddressWatch, neighbours_in, own_addresses, taken_twice

MINE, OTHER, TOWER = (f"02:00:00:00:00:0{n}" for n in range(1, 4))
AT = "192.0.2.2"


def view(mac: str, *addresses: str, neighbours: str = "", **more) -> dict:
    """Return the view of a machine with these addresses, which reaches AT at `neighbours`."""
    known = {AT: neighbours} if neighbours else {}
    held = dict.fromkeys(addresses, mac)
    return {"addresses": held, "macs": [mac], "neighbours": known, **more}


def test_neighbours_are_those_that_have_answered():
    said = [
        {"dst": "192.0.2.1", "dev": "e", "lladdr": "02:00:00:00:00:0A", "state": ["REACHABLE"]},
        {"dst": "192.0.2.2", "dev": "e", "state": ["FAILED"]},
    ]
    assert neighbours_in(json.dumps(said)) == {"192.0.2.1": "02:00:00:00:00:0a"}
    assert neighbours_in("") == {}


def test_the_own_addresses_are_those_of_cards():
    card = {"link_type": "ether", "address": MINE.upper(), "addr_info": [{"local": AT}]}
    lo = {"link_type": "loopback", "address": "00:00", "addr_info": [{"local": "127.0.0.1"}]}
    assert own_addresses(json.dumps([lo, card, {}])) == ({AT: MINE}, [MINE])


@pytest.mark.parametrize(
    ("views", "reached", "told"),
    [
        # Another node has it, whether or not the others reach the node.
        ({"laptop": view(MINE, AT), "tower": view(TOWER, AT)}, True, (MINE, TOWER, "tower")),
        # Silent: the tower reaches another machine there.
        ({"laptop": view(MINE, AT), "tower": view(TOWER, neighbours=OTHER)}, False, (MINE, OTHER)),
        # Unreachable: two nodes reach two machines there.
        (
            {"tower": view(TOWER, neighbours=MINE), "x": view("x", neighbours=OTHER)},
            False,
            (OTHER,),
        ),
        # Two machines answer one that asks, or one answers the node itself.
        ({"tower": view(TOWER, claimants={AT: [MINE, OTHER]})}, False, (MINE, OTHER)),
        ({"laptop": view(MINE, AT, claimants={AT: [OTHER]})}, True, (MINE, OTHER)),
    ],
)
def test_both_machines_are_named_by_their_macs(views, reached, told):
    assert_names(taken_twice("laptop", AT, views, reached), *told)


@pytest.mark.parametrize(
    ("views", "reached"),
    [
        ({}, False),
        ({"laptop": view(MINE, AT), "tower": view(TOWER, neighbours=MINE)}, False),
        ({"tower": view(TOWER, neighbours=MINE), "x": view("x", neighbours=MINE)}, False),
        # A repeater for Wi-Fi shows its own MAC.
        ({"laptop": view(MINE, AT), "tower": view(TOWER, neighbours=OTHER)}, True),
        # Two nodes on one machine.
        ({"laptop": view(MINE, AT), "tower": view(MINE, AT)}, False),
        # Two cards of one machine in one network.
        (
            {"laptop": view(MINE, AT) | {"macs": [MINE, OTHER]}, "x": view("x", neighbours=OTHER)},
            False,
        ),
    ],
)
def test_one_machine_is_none_too_many(views, reached):
    assert taken_twice("laptop", AT, views, reached) == ""


@pytest.mark.parametrize(
    ("later", "told"),
    [
        (view(TOWER, neighbours=OTHER), (MINE, OTHER, "another machine")),
        (view(TOWER, AT), (MINE, TOWER, "tower")),
        (view(TOWER, neighbours=MINE), ()),
        (view(TOWER), ()),
    ],
)
def test_a_lost_node_whose_address_another_machine_took_is_told(later, told, monkeypatch):
    seen = [view(TOWER, neighbours=MINE), later]
    monkeypatch.setattr(taken_address, "network_view", lambda *_, **__: seen.pop(0))
    watch = AddressWatch("tower", {"laptop": AT})
    watch.connected("laptop")
    why = watch.why_lost("laptop")
    assert_names(why, *told) if told else pytest.fail(why) if why else None


def test_without_the_program_ip_nothing_is_claimed(monkeypatch):
    monkeypatch.setattr(taken_address, "output", lambda *_, **__: "")
    assert taken_address.network_view([AT], ask=False)["neighbours"] == {}
