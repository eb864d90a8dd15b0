"""Addresses, ranks and names of the machines that were found."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names
from support.machines import at, link, machine, report

from hearth_controller.discover.choice import chosen, names, networks, nic_text, ranked, suggested
from hearth_controller.inventory.nodes import read_nodes

LAN = IPv4Network("192.168.1.0/24")
CABLE = IPv4Network("10.9.0.0/24")
SMI = "NVIDIA GeForce RTX {name}, {memory}, 580.126.09, {capability}\n"


def several(hostname, *links, came_in, **more):
    return machine(
        hostname, address=came_in, facts=report(hostname, links, came_in=came_in, **more)
    )


def with_gpu(number, name, memory, capability="8.9"):
    return at(number, gpus=SMI.format(name=name, memory=memory, capability=capability))


# -- addresses -------------------------------------------------------------------------------------


def test_a_single_address_needs_no_reason():
    choice = chosen([at(40)])[0]
    assert (choice.address, choice.nic.name, choice.why) == ("192.168.1.40", "enp5s0", "")


@pytest.mark.parametrize(
    ("speed", "shown"), [("100", "100M"), ("1000", "1G"), ("2500", "2.5G"), ("-1", "enp5s0")]
)
def test_the_speed_of_a_cable_is_shown_in_the_larger_unit(speed, shown):
    found = several(
        "desk",
        link("enp5s0", "192.168.1.41/24"),
        came_in="192.168.1.41",
        speeds={"enp5s0": speed},
    )
    assert nic_text(found, chosen([found, at(40)])[0]).split()[-1] == shown


def test_a_cable_comes_before_wifi_also_if_wifi_is_in_use():
    both = several(
        "laptop",
        link("wlp3s0", "192.168.1.77/24"),
        link("enp5s0", "192.168.1.41/24"),
        came_in="192.168.1.77",
        wireless=["wlp3s0"],
    )
    choice = chosen([both, at(40)])[0]
    assert choice.address == "192.168.1.41"
    assert_names(choice.why, "enp5s0", "192.168.1.77", "wlp3s0")


def test_the_network_of_most_machines_wins_over_a_faster_cable_of_two():
    fast = [
        several(
            f"spark{number}",
            link("enp1s0f0np0", f"10.9.0.{number}/24"),
            link("enP7s7", f"192.168.1.5{number}/24"),
            came_in=f"192.168.1.5{number}",
            speeds={"enp1s0f0np0": "200000", "enP7s7": "10000"},
        )
        for number in (1, 2)
    ]
    machines = [*fast, at(40)]
    assert networks(machines) == {LAN: 3, CABLE: 2}
    assert [each.address for each in chosen(machines)] == [
        "192.168.1.51",
        "192.168.1.52",
        "192.168.1.40",
    ]
    assert [each.address for each in chosen(fast, CABLE)] == ["10.9.0.1", "10.9.0.2"]


def test_of_networks_that_all_share_the_one_in_use_wins():
    machines = [
        several(
            f"box{number}",
            link("enp1s0", f"10.9.0.{number}/24"),
            link("enp2s0", f"192.168.1.{number}/24"),
            came_in=f"192.168.1.{number}",
        )
        for number in (1, 2)
    ]
    assert list(networks(machines)) == [LAN, CABLE]


def test_a_machine_elsewhere_keeps_its_address_and_it_is_said():
    far = several("far", link("eno1", "10.1.1.9/24"), came_in="10.1.1.9")
    choice = chosen([at(40), at(41), far])[2]
    assert choice.address == "10.1.1.9"
    assert_names(choice.why, LAN)


@pytest.mark.parametrize(
    "nic",
    [
        link("docker0", "172.17.0.1/16"),
        link("tailscale0", "100.64.0.7/32"),
        link("eno1", "169.254.10.10/16"),
        link("enp9s0", "192.168.1.99/24", up=False),
        link("enp9s0", "100.101.1.1/10"),
    ],
)
def test_addresses_that_no_cable_carries_are_never_chosen(nic):
    tower = several("tower", nic, link("wlp3s0", "192.168.1.40/24"), came_in="192.168.1.40")
    assert chosen([tower])[0].address == "192.168.1.40"


def test_a_machine_without_facts_is_where_it_was_reached():
    blind = machine("oldbox", login="password", address="192.168.1.42")
    assert chosen([at(40), blind])[1].address == "192.168.1.42"
    assert networks([at(40), blind]) == {LAN: 2}


addresses = st.builds(
    lambda network, host: f"{network}.{host}/24",
    st.sampled_from(["192.168.1", "10.9.0", "172.16.3", "169.254.1", "100.64.0"]),
    st.integers(2, 250),
)


@st.composite
def homes(draw):
    machines = []
    for number in range(draw(st.integers(1, 5))):
        nics = draw(st.lists(st.tuples(st.sampled_from(["enp1s0", "wlp2s0", "docker0"]), addresses),
                             min_size=1, max_size=3, unique_by=lambda each: each[0]))  # fmt: skip
        came_in = draw(st.sampled_from(nics))[1].partition("/")[0]
        links = [link(name, address) for name, address in nics]
        machines.append(several(f"m{number}", *links, came_in=came_in, wireless=["wlp2s0"]))
    return machines


@given(homes())
def test_every_choice_is_an_own_address_and_on_the_best_network_if_it_has_one(machines):
    best = next(iter(networks(machines)), None)
    for each, choice in zip(machines, chosen(machines), strict=True):
        own = {held.address: nic for nic, held in each.facts.held()}
        if not own:
            assert choice.address == each.reached_at
            continue
        assert choice.address in own
        on_best = [address for address in own if IPv4Address(address) in best]
        assert (choice.address in on_best) == bool(on_best)
        if any(not own[address].wireless for address in on_best):
            assert not own[choice.address].wireless


@given(homes(), st.randoms())
def test_the_choice_does_not_depend_on_the_order(machines, random):
    before = dict(zip(map(id, machines), chosen(machines), strict=True))
    random.shuffle(machines)
    assert dict(zip(map(id, machines), chosen(machines), strict=True)) == before


# -- ranks and names -------------------------------------------------------------------------------


def test_more_memory_of_gpus_comes_first_and_unknown_before_none():
    big, small, two = (
        with_gpu(1, "3090", 24576),
        with_gpu(2, "4070", 12282),
        at(3, gpus=SMI.format(name="3090", memory=24576, capability="8.6") * 2),
    )
    none, blind = at(4), machine("blind", login="password", address="192.168.1.5")
    assert ranked([none, small, blind, big, two]) == [two, big, small, blind, none]


def test_without_a_driver_newer_gpus_come_first_and_laptops_last():
    old, new = at(1, cards=["2482"]), at(2, cards=["2c05"])
    laptop = at(3, cards=["2c05"], battery=True)
    assert ranked([old, laptop, new]) == [new, laptop, old]


hostnames = st.sampled_from(["ubuntu", "Ubuntu", "ubuntu-2", "localhost", "tower.lan", "all", "ÄÖ"])


@given(st.lists(hostnames | st.text(max_size=70), max_size=6))
def test_names_are_unique_and_fit_for_the_inventory(texts):
    found = names([at(number, text or "?") for number, text in enumerate(texts, 1)])
    members = {name: {"cluster_address": f"10.0.0.{n}"} for n, name in enumerate(found, 1)}
    assert len({name.lower() for name in found}) == len(texts) == len(members)
    assert not texts or read_nodes(members)[1] == []
    assert not {"localhost", "all", "cluster", "ungrouped"} & {name.lower() for name in found}


def test_a_person_s_name_wins_over_the_host_name_and_that_over_the_ssh_name():
    asked = machine("192.168.1.40", facts=report("debian"), name="tower", asked=True)
    known = machine("big-one", facts=report("tower.home.arpa"))
    blind = machine("192.168.1.42", login="password")
    assert names([asked, known, blind]) == ["tower", "tower-2", "node3"]


# -- the suggestion --------------------------------------------------------------------------------


def test_machines_with_a_gpu_or_a_person_s_name_are_suggested():
    gpu, none = at(1, cards=["2c05"]), at(2)
    asked = machine("x", login="silent", asked=True)
    used = machine("y", login="password", source="~/.ssh/known_hosts")
    heard = machine("z", login="password", source="mDNS")
    closed = machine("w", login="refused")
    here = machine("localhost", login="local", facts=report())
    machines = [none, gpu, asked, used, heard, closed, here]
    assert suggested(machines, here=False) == [1, 2, 3]
    assert suggested(machines, here=True) == [1, 2, 3, 6]


def test_if_nothing_speaks_for_a_machine_all_that_can_be_used_are_suggested():
    heard = machine("z", login="password", source="mDNS")
    assert suggested([at(1), heard, machine("w", login="refused")], here=False) == [0, 1]
