"""Which NIC gets which address, and why it should rather not be touched."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from ipaddress import ip_network

import pytest
from ansible.module_utils.hearth.base.nics import Held, Nic, nics_of
from ansible.module_utils.hearth_node.network import inspect, neighbours, nics, plan
from ansible.module_utils.hearth_node.network.nics import Manager
from ansible.module_utils.hearth_node.network.plan import AddressRequest, Wanted
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names

LEASED = Held("192.168.1.9", 24, True)
HOME = Nic("enp5s0", 2, "02:00:00:00:00:01", True, (LEASED,), gateway="192.168.1.1")
SECOND = Nic("eno2", 3, "02:00:00:00:00:0b", True, (Held("10.0.0.2", 8, False),))
DOCKER = Nic("docker0", 4, "02:00:00:00:00:03", False, (Held("172.17.0.1", 16, False),))
TAILSCALE = Nic("tailscale0", 5, "", True, (Held("100.64.0.1", 32, False),))
ALL = [DOCKER, TAILSCALE, SECOND, HOME]
NETWORKD = Manager("networkd", definition="enp5s0", dns=("192.168.1.1",))
ASKED = AddressRequest("192.168.1.40", reached=("192.168.1.9",))


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (ASKED, "enp5s0"),
        (AddressRequest("192.168.1.40", reached=("10.0.0.2",)), "eno2"),
        (AddressRequest("10.0.0.2"), "eno2"),
        # Nothing known of how it is reached: the way to the world, never a program's own NIC.
        (AddressRequest("192.168.1.40"), "enp5s0"),
        (AddressRequest("192.168.1.40", reached=("172.17.0.1", "100.64.0.1")), "enp5s0"),
        (AddressRequest("192.168.1.40", interface="eno2"), "eno2"),
        (AddressRequest("192.168.1.40", mac="02:00:00:00:00:0B"), "eno2"),
        (AddressRequest("192.168.1.40", interface="eno2", mac=SECOND.mac), "eno2"),
    ],
)
def test_the_nic_is_the_one_that_is_meant(asked, chosen):
    nic, findings = plan.choose(ALL, asked)
    assert findings == []
    assert nic.name == chosen


@pytest.mark.parametrize(
    ("asked", "facts"),
    [
        ({"interface": "eth0"}, ["network_interface eth0", "eno2"]),
        ({"mac": "02:00:00:00:00:09"}, ["network_mac 02:00:00:00:00:09"]),
        ({"interface": "enp5s0", "mac": SECOND.mac}, ["network_interface enp5s0", SECOND.mac]),
        ({"mac": HOME.mac}, ["enp5s0, br0"]),
    ],
)
def test_no_nic_or_several_are_a_finding(asked, facts):
    asked = AddressRequest("1.2.3.4", **asked)
    nic, findings = plan.choose([*ALL, replace(HOME, name="br0")], asked)
    assert nic is None
    assert_names(findings[0], *facts)


def test_the_metric_of_the_default_route_decides_where_nothing_else_does():
    leading = replace(HOME, leads=True)
    assert plan.carrier([replace(SECOND, gateway="10.0.0.1"), leading], ()) is leading
    assert plan.carrier([DOCKER, replace(TAILSCALE, leads=True)], ()) is None


def test_what_is_not_asked_for_is_what_is_in_force():
    now = Wanted("192.168.1.40", 24, "192.168.1.1", ("192.168.1.1",), "192.168.1.9")
    assert plan.settle(HOME, NETWORKD, ASKED) == now
    other = {"gateway": "192.168.1.2", "dns": ("9.9.9.9",)}
    assert plan.settle(HOME, NETWORKD, replace(ASKED, **other)) == replace(now, **other)


WRONG = [
    ({"address": "fd00::1"}, {}, {}, ["fd00::1", "IPv4"]),
    ({"address": "192.168.2.40"}, {}, {}, ["192.168.2.40", "enp5s0"]),
    ({"address": "192.168.1.0"}, {}, {}, ["192.168.1.0", "192.168.1.0/24"]),
    ({"address": "192.168.1.255"}, {}, {}, ["192.168.1.255", "192.168.1.0/24"]),
    ({"gateway": "10.0.0.1"}, {}, {}, ["network_gateway 10.0.0.1", "192.168.1.0/24"]),
    ({"gateway": "192.168.1.40"}, {}, {}, ["network_gateway 192.168.1.40", "cluster_address"]),
    ({"gateway": "router"}, {}, {}, ["network_gateway router", "IPv4"]),
    ({"dns": ("router", "1.1.1.1")}, {}, {}, ["network_dns router"]),
    ({}, {"cable": False}, {}, ["enp5s0", "link"]),
    ({}, {"held": ()}, {}, ["enp5s0", "no address"]),
    ({"mtu": 9000}, {"most": 4000}, {}, ["network_mtu 9000", "enp5s0", "4000"]),
    ({"mtu": 600}, {}, {}, ["network_mtu 600", "enp5s0"]),
    ({"mtu": 9000}, {"wireless": True}, {}, ["network_mtu 9000", "Wi-Fi"]),
    ({}, {}, {"kind": "ifupdown", "file": "/etc/network/interfaces"}, ["ifupdown"]),
    ({}, {}, {"kind": ""}, ["systemd-networkd", "NetworkManager"]),
    ({}, {}, {"definition": "", "file": "/etc/x.network"}, ["/etc/x.network", "netplan"]),
    ({}, {"wireless": True}, {}, ["Wi-Fi", "systemd-networkd"]),
]


@pytest.mark.parametrize(("asked", "nic", "manager", "facts"), WRONG)
def test_what_would_lock_out_is_refused_by_name(asked, nic, manager, facts):
    findings = plan.wrong(
        replace(HOME, **nic), replace(NETWORKD, **manager), replace(ASKED, **asked)
    )
    assert findings
    assert_names("\n".join(findings), *facts)
    if manager:
        assert_names(findings[0], "192.168.1.40", "MAC 02:00:00:00:00:01")


CABLE = replace(SECOND, held=(), mtu=1500, most=9978)
DIRECT = AddressRequest("10.9.0.1", interface="eno2", reached=("192.168.1.9",), mtu=9000)


@pytest.mark.parametrize(
    ("held", "prefix"),
    [((), 24), ((Held("169.254.7.7", 16, True),), 24), ((Held("10.9.0.3", 29, False),), 29)],
)
def test_a_named_nic_that_nobody_comes_in_by_takes_any_address(held, prefix):
    """As that of a direct cable, beside the network that SSH goes over."""
    nic = replace(CABLE, held=held)
    assert plan.apart(nic, DIRECT)
    assert plan.wrong(nic, NETWORKD, DIRECT) == []
    wanted = plan.settle(nic, Manager(), DIRECT)
    assert (wanted.prefix, wanted.gateway, wanted.mtu) == (prefix, "", 9000)


@pytest.mark.parametrize(("asked", "goal"), [(DIRECT, "192.168.1.9"), (ASKED, ASKED.address)])
def test_the_controller_comes_back_by_the_way_that_it_came(monkeypatch, asked, goal):
    monkeypatch.setattr(inspect, "manager_of", lambda _: Manager())
    monkeypatch.setattr(neighbours, "listen", lambda *_: {})
    assert inspect.static(asked, [HOME, CABLE], {}, force=False).goals == [goal]


@pytest.mark.parametrize(
    ("nic", "asked"),
    [
        (CABLE, {"interface": ""}),
        (replace(CABLE, gateway="10.9.0.254"), {}),
        (replace(CABLE, held=(LEASED,)), {}),
    ],
)
def test_a_nic_that_somebody_may_come_in_by_does_not(nic, asked):
    assert not plan.apart(nic, replace(DIRECT, **asked))


def test_the_nic_that_is_named_has_the_address_and_alone_its_link_local_network():
    cable = replace(CABLE, held=(Held("169.254.7.7", 16, True),))
    second = replace(
        cable, name="eno3", mac="02:00:00:00:00:04", held=(Held("169.254.1.1", 16, True),)
    )
    asked = AddressRequest("169.254.7.7", interface="eno2")
    assert plan.ambiguous(cable, [*ALL, cable], asked) == []
    by_mac = replace(asked, mac=cable.mac.upper())  # as Windows and routers write it
    assert plan.ambiguous(cable, [*ALL, cable], by_mac) == []
    assert_names(*plan.ambiguous(cable, [cable, second], asked), "eno3", "169.254.1.1")
    for named in ({"interface": "eno3"}, {"interface": "", "mac": second.mac}):
        assert_names(*plan.ambiguous(cable, [cable], replace(asked, **named)), "eno2")


def test_nothing_is_wrong_with_a_free_address_of_the_network():
    assert plan.wrong(HOME, NETWORKD, ASKED) == []
    wifi = replace(HOME, wireless=True)
    assert plan.wrong(wifi, Manager("networkmanager", file="/etc/x"), ASKED) == []


def test_all_findings_come_at_once():
    asked = replace(ASKED, gateway="10.0.0.1", dns=("x",))
    assert len(plan.wrong(replace(HOME, cable=False), Manager(), asked)) == 4


@given(st.ip_addresses(v=4), st.integers(0, 32))
def test_a_settled_address_is_never_refused_for_its_own_network(address, prefix):
    held = Held(str(address), prefix, True)
    nic = replace(HOME, held=(held,), gateway="")
    findings = plan.wrong(nic, NETWORKD, AddressRequest(str(address)))
    edges = ip_network(f"{address}/{prefix}", strict=False)
    assert not findings or address in (edges[0], edges[-1])


@pytest.mark.parametrize(
    ("held", "gateway", "fact"),
    [
        ((Held("192.168.1.40", 24, False),), "192.168.1.1", ""),
        ((Held("192.168.1.40", 24, True),), "192.168.1.1", "leased"),
        ((Held("192.168.1.40", 16, False),), "192.168.1.1", "/24"),
        ((LEASED,), "192.168.1.1", "192.168.1.9/24"),
        ((), "192.168.1.1", "no address"),
        ((Held("192.168.1.40", 24, False),), "", "gateway"),
    ],
)
def test_the_address_seen_on_the_nic_is_what_counts(held, gateway, fact):
    wanted = Wanted("192.168.1.40", 24, "192.168.1.1")
    findings = plan.not_in_force(replace(HOME, held=held, gateway=gateway), wanted)
    assert bool(findings) == bool(fact)
    assert fact in "".join(findings[:1])


def test_another_mtu_is_not_in_force_and_packets_that_are_lost_are_told():
    held = (Held("10.9.0.1", 24, False),)
    wanted = Wanted("10.9.0.1", 24, mtu=9000)
    assert plan.not_in_force(replace(CABLE, held=held, mtu=9000), wanted) == []
    assert_names(*plan.not_in_force(replace(CABLE, held=held), wanted), "eno2", "1500", "9000")
    assert_names(*plan.cut(9000, {"laptop": "10.9.0.2"}), "laptop at 10.9.0.2", "9000", "8972")
    assert plan.cut(9000, {}) == []


def test_whole_packets_are_sent_to_each_peer_from_the_address(program):
    """With a stand-in for ping, which reaches one of two peers."""
    program("ping", 'test "$*" = "-c 1 -W 2 -M do -s 8972 -I 10.9.0.1 10.9.0.2" && echo ok')
    peers = {"laptop": "10.9.0.2", "oldbox": "10.9.0.3"}
    assert neighbours.cut_off("10.9.0.1", 9000, peers) == {"oldbox": "10.9.0.3"}


def test_verify_names_the_address_and_both_ways_out():
    (said,) = plan.absent(ALL, ASKED)
    assert_names(said, "enp5s0 (MAC 02:00:00:00:00:01) has 192.168.1.9/24", "192.168.1.40")
    assert_names(said, "network_mode: static")
    assert "DHCP" in said
    (said,) = plan.absent([HOME, CABLE], DIRECT)
    assert_names(said, "eno2 (MAC 02:00:00:00:00:0b) has no address", "network_mode: static")
    assert "DHCP" not in said
    assert plan.absent(ALL, AddressRequest("10.0.0.2")) == []
    assert plan.absent([replace(HOME, sixes=("fd00::1",))], AddressRequest("fd00::1")) == []


def test_answers_of_the_network_are_judged():
    others = {"192.168.1.40": "02:00:00:00:00:77"}
    used, silent = plan.around(HOME, "192.168.1.40", "192.168.1.1", others, {})
    assert_names(used, "192.168.1.40", "MAC 02:00:00:00:00:77")
    assert_names(silent, "192.168.1.1")
    assert plan.around(HOME, "192.168.1.40", "", {}, {}) == []
    assert_names(*plan.silent({"laptop": "192.168.1.41"}), "laptop at 192.168.1.41")


@pytest.mark.parametrize(
    ("laptop", "facts", "absent"),
    [
        # It moves elsewhere: it goes first. It wants this machine's own: neither can go first.
        (["192.168.1.41", "192.168.1.40"], ["-e nodes=laptop", "192.168.1.41"], "third"),
        (
            ["192.168.1.9", "192.168.1.40"],
            ["-e nodes=laptop", "third", "192.168.1.9"],
            "of the two",
        ),
        (["192.168.1.40"], ["one of the two"], "laptop"),
        (["192.168.1.41", "192.168.1.50"], ["one of the two"], "laptop"),
    ],
)
def test_an_address_that_a_node_leaves_comes_with_the_order_of_the_moves(laptop, facts, absent):
    taken = {"192.168.1.40": "02:00:00:00:00:77"}
    (said,) = plan.around(HOME, "192.168.1.40", "", taken, {"laptop": laptop})
    assert_names(said, "192.168.1.40", "MAC 02:00:00:00:00:77", *facts)
    assert absent not in said


# ---- what the machine says ----------------------------------------------------------------------


def test_nics_are_read_from_ip():
    addresses = [
        {"family": "inet", "local": "192.168.1.9", "prefixlen": 24, "dynamic": True},
        {"family": "inet6", "local": "fe80::1", "prefixlen": 64},
    ]
    cable = {"address": "02:00:00:00:00:0A", "flags": ["UP", "LOWER_UP"], "addr_info": addresses}
    cable |= {"mtu": 1500, "max_mtu": 9216}
    links = [
        {"ifname": "enp5s0", "ifindex": 2, **cable},
        {},
        {"ifname": "wlan0", "ifindex": 3, "flags": ["BROADCAST"], "addr_info": []},
    ]
    routes = [
        {"dst": "default", "gateway": "192.168.1.2", "dev": "enp5s0", "metric": 600},
        {"dst": "default", "gateway": "192.168.1.1", "dev": "enp5s0", "metric": 100},
        {"dst": "default", "dev": "wg0", "metric": 700},
    ]
    home, wifi = nics_of(json.dumps(links), json.dumps(routes), {"wlan0"})
    assert (home.mac, home.gateway, home.cable) == ("02:00:00:00:00:0a", "192.168.1.1", True)
    assert (home.held, home.sixes) == ((LEASED,), ("fe80::1",))
    assert (wifi.wireless, wifi.cable, wifi.gateway) == (True, False, "")
    assert (home.leads, wifi.leads) == (True, False)
    assert (home.mtu, home.most, wifi.most) == (1500, 9216, 0)
    assert nics_of("", "", set()) == []


LINK = "ADMIN_STATE=configured\nNETWORK_FILE={}\nDNS=192.168.1.1 fe80::1 9.9.9.9\n"


@pytest.mark.parametrize(
    ("state", "manager"),
    [
        ("", None),
        ("ADMIN_STATE=unmanaged\nNETWORK_FILE=/x\n", None),
        (LINK.format("/run/systemd/network/10-netplan-all-en.network"), "all-en"),
        (LINK.format("/etc/systemd/network/my.network"), ""),
    ],
)
def test_networkd_is_told_by_what_it_says_of_the_link(state, manager):
    found = nics.networkd_of(state)
    assert (found and found.definition) == manager
    if found:
        assert (found.kind, found.dns) == ("networkd", ("192.168.1.1", "9.9.9.9"))


PROFILES = (
    "aa:/run/NetworkManager/system-connections/netplan-enp5s0.nmconnection\n"
    "bb:/etc/NetworkManager/system-connections/At home\\: wired.nmconnection\n"
)


@pytest.mark.parametrize(
    ("device", "definition", "file", "dns"),
    [
        ("aa\nIP4.DNS[1]:192.168.1.1\n", "enp5s0", "netplan-enp5s0.nmconnection", ("192.168.1.1",)),
        ("bb\n", "", "At home: wired.nmconnection", ()),
        ("cc\n", "", "", ()),
    ],
)
def test_networkmanager_is_told_by_its_active_profile(device, definition, file, dns):
    found = nics.networkmanager_of(f"GENERAL.CON-UUID:{device}", PROFILES)
    assert (found.kind, found.definition, found.dns) == ("networkmanager", definition, dns)
    assert found.file.rpartition("/")[2] == file


@pytest.mark.parametrize("device", ["", "GENERAL.CON-UUID:\n", "GENERAL.CON-UUID:--\n"])
def test_a_nic_without_an_active_profile_is_not_networkmanagers(device):
    assert nics.networkmanager_of(device, PROFILES) is None


def test_networkmanager_is_asked_for_the_nics_profile(program):
    program(
        "nmcli",
        'case "$*" in *"device show hearth9") echo GENERAL.CON-UUID:1-2 ;;'
        " *connection*) echo 1-2:/etc/NetworkManager/system-connections/home ;; esac",
    )
    found = nics.manager_of(Nic("hearth9", 99_999, "02:00:00:00:00:09", True))
    assert (found.kind, found.uuid) == ("networkmanager", "1-2")
    assert found.file == "/etc/NetworkManager/system-connections/home"


def test_ifupdown_is_told_by_the_nic_in_its_files():
    texts = {"/lo": "iface lo inet\n", "/card": "auto eno1\niface eno1 inet dhcp\n"}
    assert nics.ifupdown_of(texts, "eno1") == Manager("ifupdown", file="/card")
    assert nics.ifupdown_of(texts, "eno") is None


HOMES = ("enp5s0", "eno1", "wlp0s20f3", "eth0", "br0", "bond0", "lan0")
PROGRAMS = ("lo", "docker0", "tailscale0", "br-1a2b", "veth12ab", "virbr0", "wg0", "tun0")


@pytest.mark.parametrize("name", [*HOMES, *PROGRAMS])
def test_a_homes_nics_are_told_from_those_of_programs(name):
    assert replace(HOME, name=name).ordinary == (name in HOMES)


# ---- questions to the network -------------------------------------------------------------------


@given(st.ip_addresses(v=4), st.ip_addresses(v=4), st.binary(min_size=6, max_size=6))
def test_a_question_names_its_sender(sender, target, mac):
    frame = neighbours.arp_request(mac.hex(":"), str(sender), str(target))
    assert len(frame) == 42
    assert frame[:6] == b"\xff" * 6
    assert neighbours.arp_answer(frame) == (str(sender), mac.hex(":"))


@given(st.binary(max_size=60))
def test_what_is_no_answer_is_passed_over(frame):
    said = neighbours.arp_answer(frame)
    assert said is None or frame[14:20] == b"\x00\x01\x08\x00\x06\x04"


def test_a_nic_carries_its_addresses_however_they_are_written():
    nic = replace(HOME, held=(Held("192.168.1.40", 24, False),), sixes=("fd00::28",))
    assert [nic.carries(each) for each in ("192.168.1.40", "fd00:0:0::28")] == [True, True]
    assert not nic.carries("192.168.1.4")


# ---- the way out --------------------------------------------------------------------------------


def test_package_servers_are_read_from_both_kinds_of_apts_files():
    sources = (
        "# deb http://old.example/debian x main\n"
        "deb [signed-by=/k.gpg] https://deb.example/debian bookworm main\n"
        "deb https://deb.example/debian bookworm-updates main\n"
        "deb file:///srv ./\nTypes: deb\nURIs: http://proxy.example:3142/ubuntu/\n"
    )
    servers = [("deb.example", 443), ("proxy.example", 3142)]
    assert neighbours.package_servers(sources) == servers
    assert len(neighbours.package_servers("\n".join(f"deb http://{n}/ x" for n in range(9)))) == 4


def test_a_server_of_the_homes_own_network_proves_nothing():
    wanted = Wanted("192.168.1.40", 24, "192.168.1.1", ("192.168.1.1", "9.9.9.9"))
    assert neighbours.outside_servers(wanted)["9.9.9.9"] == ("9.9.9.9", 53)
    assert "192.168.1.1" not in neighbours.outside_servers(wanted)


def test_a_server_that_refuses_is_reached_and_one_that_is_silent_is_not(monkeypatch):
    monkeypatch.setattr(neighbours, "_SECONDS", 0.5)
    with socket.create_server(("127.0.0.2", 0), backlog=0) as full:
        silent = full.getsockname()
        with socket.create_connection(silent):  # its queue is full: what comes now is dropped
            asked = {"refuses": ["127.0.0.3", silent[1]], "silent": silent}
            assert list(neighbours.reached_through("lo", asked)) == ["refuses"]
    assert neighbours.reached_through("lo", {}) == {}
