"""The interface that carries an address, and free ports."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import psutil
import pytest
from support.facts import refuses

from hearth.base.errors import LaunchError
from hearth.supervise.interface import family_of, free_port, interface_of


@pytest.fixture
def machine(monkeypatch):
    """Stand in for a machine with a decoy, a cable and a Wi-Fi interface that is down."""

    def entry(address: str):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return SimpleNamespace(family=family, address=address)

    addresses = {
        "lo": [entry("127.0.0.1"), entry("::1")],
        "docker0": [entry("172.17.0.1")],
        "enp5s0": [entry("10.0.0.2"), entry("fe80::1%enp5s0"), entry("fd00::2")],
        "wlp3s0": [entry("10.0.1.2")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(
        psutil,
        "net_if_stats",
        lambda: {name: SimpleNamespace(isup=name != "wlp3s0") for name in addresses},
    )


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("10.0.0.2", "enp5s0"),
        ("fd00::2", "enp5s0"),
        ("fd00:0::0:2", "enp5s0"),
        ("127.0.0.1", "lo"),
        ("127.0.0.2", "lo"),
        ("::1", "lo"),
    ],
)
def test_the_interface_is_the_one_that_carries_the_address(machine, address, name):
    assert interface_of(address) == name


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


def test_nccl_is_told_the_family():
    assert family_of("10.0.0.2") == "AF_INET"
    assert family_of("fd00::2") == "AF_INET6"
