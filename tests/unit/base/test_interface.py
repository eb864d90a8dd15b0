"""The interface that carries an address, and free ports."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.facts import refuses

from hearth.base.errors import LaunchError
from hearth.base.interface import family_of, free_port, interface_of


@pytest.fixture
def machine(monkeypatch):
    """Stand in for a machine with a decoy, a cable and a Wi-Fi interface that is down."""
    addresses = {
        "lo": ["127.0.0.1", "::1"],
        "docker0": ["172.17.0.1"],
        "enp5s0": ["10.0.0.2", "fe80::1%enp5s0", "fd00::2"],
        "wlp3s0": ["10.0.1.2"],
    }
    entries = {
        name: [
            SimpleNamespace(family=getattr(socket, family_of(each)), address=each) for each in own
        ]
        for name, own in addresses.items()
    }
    states = {name: SimpleNamespace(isup=name != "wlp3s0") for name in addresses}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: entries)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: states)


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("enp5s0", ["10.0.0.2", "fd00::2", "fd00:0::0:2"]),
        ("lo", ["127.0.0.1", "127.0.0.2", "::1"]),
    ],
)
def test_the_interface_is_the_one_that_carries_the_address(machine, name, addresses):
    assert {interface_of(address) for address in addresses} == {name}


def test_an_address_of_another_machine_is_refused_with_the_ones_there_are(machine):
    with refuses(LaunchError, "address 10.0.0.3", "enp5s0 10.0.0.2") as error:
        interface_of("10.0.0.3")
    assert "fe80" not in str(error.value)


def test_an_interface_that_is_down_is_named(machine):
    with refuses(LaunchError, "wlp3s0", "10.0.1.2", "down"):
        interface_of("10.0.1.2")


def test_a_taken_port_is_refused_and_a_free_one_stays_free():
    port = free_port("127.0.0.1")
    assert free_port("127.0.0.1", port) == port
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with refuses(LaunchError, f"port {port}", "127.0.0.1"):
            free_port("127.0.0.1", port)


def test_a_free_port_is_one_that_no_connection_is_given_meanwhile():
    picked = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    assert free_port("127.0.0.1") > int(picked.split()[1])


def test_nccl_is_told_the_family():
    assert family_of("10.0.0.2") == "AF_INET"
    assert family_of("fd00::2") == "AF_INET6"
