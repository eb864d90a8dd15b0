"""Which of netplan's files defines a NIC, and the same file with a fixed address in it."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import yaml
from ansible.module_utils.hearth.base.nics import Nic
from ansible.module_utils.hearth_node.network import change, netplan
from ansible.module_utils.hearth_node.network.nics import Manager
from ansible.module_utils.hearth_node.network.plan import Wanted
from hypothesis import given
from hypothesis import strategies as st

WANTED = Wanted("192.168.1.40", 24, "192.168.1.1", ("192.168.1.1",))
FIXED = {
    "addresses": ["192.168.1.40/24"],
    "routes": [{"to": "default", "via": "192.168.1.1"}],
    "nameservers": {"addresses": ["192.168.1.1"]},
}
OTHERS = {"network": {"version": "2", "ethernets": {"eno2": {"mtu": "9000"}}, "wifis": {"w": {}}}}


def changed(settings: str, key: str = "enp5s0", wanted: Wanted = WANTED) -> dict:
    """Return the definitions after NIC enp5s0 got its address in this one (flow YAML)."""
    document = copy.deepcopy(OTHERS)
    document["network"]["ethernets"] |= netplan.load(f"network: {{{key}: {settings}}}")["network"]
    before = copy.deepcopy(document)
    place = netplan.Position("/etc/netplan/a.yaml", "ethernets", key)
    after, _ = netplan.with_address(document, place, "enp5s0", wanted)
    assert document == before
    section = after["network"]["ethernets"]
    after["network"]["ethernets"] = {"eno2": section.pop("eno2")}
    assert after == OTHERS
    return section


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("{dhcp4: true}", {"dhcp4": "false"}),
        ("{dhcp4: yes, mtu: 9000}", {"dhcp4": "false", "mtu": "9000"}),
        ("{}", {}),
    ],
)
def test_a_definition_gets_the_address_and_keeps_the_rest(settings, expected):
    assert changed(settings) == {"enp5s0": expected | FIXED}


def test_an_mtu_is_set_and_is_a_change_by_itself():
    wanted = replace(WANTED, mtu=9000)
    once = changed("{dhcp4: true}", wanted=WANTED)["enp5s0"]
    assert "mtu" not in once
    text = yaml.safe_dump(once, default_flow_style=True, width=1000)
    assert changed(text, wanted=wanted)["enp5s0"] == once | {"mtu": "9000"}


def test_another_address_of_the_nic_stays_and_the_one_in_use_gives_way():
    wanted = Wanted("192.168.1.40", 24, instead="192.168.1.9")
    there = "[192.168.1.9/24, 10.0.0.5/8, {10.1.0.5/8: {label: a}}, 'fd00::1/64']"
    after = changed(f"{{addresses: {there}}}", wanted=wanted)["enp5s0"]
    others = ["10.0.0.5/8", {"10.1.0.5/8": {"label": "a"}}, "fd00::1/64"]
    assert after["addresses"] == ["192.168.1.40/24", *others]


@pytest.mark.parametrize(
    ("settings", "routes"),
    [
        ("gateway4: 192.168.1.254", "{to: default, via: 192.168.1.1}"),
        (
            "routes: [{to: 10.9.0.0/16, via: 192.168.1.2}, {to: default, via: 'fe80::1'}]",
            "{to: 10.9.0.0/16, via: 192.168.1.2}, {to: default, via: 'fe80::1'}, "
            "{to: default, via: 192.168.1.1}",
        ),
        (
            "routes: [{to: 0.0.0.0/0, via: 192.168.1.254, metric: 50}]",
            "{to: 0.0.0.0/0, via: 192.168.1.1, metric: 50}",
        ),
        (
            "dhcp4: true, dhcp4-overrides: {route-metric: 700}",
            "{to: default, via: 192.168.1.1, metric: 700}",
        ),
    ],
)
def test_there_is_one_default_route_and_the_others_stay(settings, routes):
    after = changed(f"{{{settings}}}")["enp5s0"]
    assert after["routes"] == netplan.load(f"network: {{routes: [{routes}]}}")["network"]["routes"]
    assert "gateway4" not in after


def test_without_a_gateway_there_is_no_default_route():
    after = changed("{dhcp4: true}", wanted=Wanted("192.168.1.40", 24))["enp5s0"]
    assert after == {"dhcp4": "false", "addresses": ["192.168.1.40/24"]}


@pytest.mark.parametrize(
    "settings",
    [
        "{dhcp4: no, addresses: [192.168.1.40/24], gateway4: 192.168.1.1}",
        "{addresses: [10.0.0.5/8, 192.168.1.40/24], routes: [{to: default, via: 192.168.1.1}]}",
    ],
)
def test_what_is_as_wanted_already_is_left_as_it_is_written(settings):
    wanted = Wanted("192.168.1.40", 24, "192.168.1.1")
    written = netplan.load(f"network: {{ethernets: {{enp5s0: {settings}}}}}")
    assert changed(settings, wanted=wanted) == written["network"]["ethernets"]


@pytest.mark.parametrize(
    ("match", "alone"),
    [
        ("{name: enp5s0}", True),
        ("{macaddress: '02:4c:41:42:00:01'}", True),
        ("{macaddress: '02:4c:41:42:00:01', name: 'en*'}", True),
        ("{name: 'en*'}", False),
        ("{name: 'enp[5]s0'}", False),
        ("{driver: r8169}", False),
        ("{driver: r8169, name: enp5s0}", True),
    ],
)
def test_a_definition_for_several_nics_stays_and_gets_one_in_front(match, alone):
    section = changed(f"{{match: {match}, dhcp4: true, mtu: 1400}}", key="all-en")
    first = section.pop(min(section))
    assert (first["addresses"], first["mtu"]) == (FIXED["addresses"], "1400")
    if alone:
        assert section == {}
    else:
        assert first["match"] == {"name": "enp5s0"}
        assert section["all-en"]["dhcp4"] == "true"


def test_the_one_in_front_is_ranked_for_networkmanager_and_no_twin_of_the_other():
    backend = {"uuid": "u", "name": "n", "passthrough": {"a.b": "c"}}
    several = {"match": {"name": "en*"}, "networkmanager": backend}
    document = {"network": {"ethernets": {"all": several}}}
    place = netplan.Position("a", "ethernets", "all")
    after, key = netplan.with_address(document, place, "enp5s0", WANTED, ranked=True)
    assert after["network"]["ethernets"][key]["networkmanager"] == {
        "passthrough": {"a.b": "c", "connection.autoconnect-priority": "100"}
    }


NOT_TEXT_IN_YAML = ("true", "no", "on", "~", "null", "", "0123", "1_000", "1e3", "2026-01-01")
SCALARS = st.one_of(
    st.sampled_from([*NOT_TEXT_IN_YAML, "52:54:00:12:34:56"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=["Cc"])),
)


@given(st.dictionaries(SCALARS, st.one_of(SCALARS, st.lists(SCALARS)), max_size=5))
def test_every_value_is_read_and_written_as_the_text_that_it_is(values):
    document = {"network": {"ethernets": {"a": values}}}
    text = netplan.dump(document, "a")
    assert netplan.load(text) == document
    # netplan reads scalars as text; so does PyYAML's plainest loader.
    plainest = yaml.load(text, yaml.BaseLoader)["network"]["ethernets"]["a"]
    assert plainest == values


@pytest.mark.parametrize("text", ["[", "- a", "network: [a]", "a: b: c"])
def test_what_is_no_netplan_file_is_named(text):
    with pytest.raises(ValueError):
        netplan.load(text)


def test_a_file_in_run_counts_instead_of_the_one_in_etc():
    paths = [f"/{place}.yaml" for place in ("run/netplan/b", "etc/netplan/a", "etc/netplan/b")]
    assert netplan.in_force([*paths, "/lib/netplan/b.yaml"]) == [
        "/etc/netplan/a.yaml",
        "/run/netplan/b.yaml",
    ]


DOCUMENTS = {
    "a.yaml": netplan.load("network: {ethernets: {enp5s0: {dhcp4: true}}}"),
    "b.yaml": netplan.load("network: {ethernets: {enp5s0: {mtu: 9000}, eno1: }}"),
    "c.yaml": netplan.load("network: {wifis: {NM-1: {}, NM-1-2: {}}, bridges: {br0: {}}}"),
    "d.yaml": netplan.load("network: {version: 2, renderer: NetworkManager}"),
}


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("eno1", [("b.yaml", "ethernets", "eno1")]),
        ("enp5s0", [("a.yaml", "ethernets", "enp5s0"), ("b.yaml", "ethernets", "enp5s0")]),
        ("br0", [("c.yaml", "bridges", "br0")]),
        ("NM-1-My Home", [("c.yaml", "wifis", "NM-1")]),
        ("NM-1-2-My Home", [("c.yaml", "wifis", "NM-1-2")]),
        ("enp6s0", []),
    ],
)
def test_where_a_definition_stands(key, found):
    assert [(p.path, p.section, p.key) for p in netplan.places(DOCUMENTS, key)] == found


@pytest.mark.parametrize(
    ("file", "installed", "held"),
    [
        ("50-cloud-init.yaml", True, True),
        ("50-cloud-init.yaml", False, False),
        ("01-home.yaml", True, False),
    ],
)
def test_cloud_init_writes_its_netplan_file_no_more_once_hearth_changed_it(
    monkeypatch, file, installed, held
):
    definition = "network: {version: 2, ethernets: {enp5s0: {dhcp4: true}}}"
    # Stands in for a machine of the cloud's images: these files, and netplan itself.
    monkeypatch.setattr(change, "_read", lambda _: definition)
    monkeypatch.setattr(change, "_validate", lambda *_: None)
    monkeypatch.setattr(change.os.path, "isdir", lambda _: installed)
    paths = {"/etc/netplan/*.yaml": [f"/etc/netplan/{file}"]}
    monkeypatch.setattr(change.glob, "glob", lambda pattern: paths.get(pattern, []))
    nic = Nic("enp5s0", 2, "02:00:00:00:00:01", True)
    found = change.candidate(nic, Manager("networkd", definition="enp5s0"), WANTED, "enp5s0")
    assert [yaml.safe_load(text) for text in found.also.values()] == (
        [{"network": {"config": "disabled"}}] if held else []
    )


def test_power_saving_of_a_wifi_goes_off_and_its_password_stays():
    document = netplan.load(
        "network: {wifis: {w: {access-points: {Home: {password: s3cret}, Old: }}}}"
    )
    after = netplan.awake(document, netplan.Position("a", "wifis", "w"))
    points = after["network"]["wifis"]["w"]["access-points"]
    assert points["Home"]["password"] == "s3cret"
    for point in points.values():
        assert point["networkmanager"] == {"passthrough": {"wifi.powersave": "2"}}
    assert "networkmanager" not in str(document)
