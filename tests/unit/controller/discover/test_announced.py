"""Machines that announce themselves by mDNS, on the loopback alone."""

from __future__ import annotations

import socket
import sys

import pytest
from zeroconf import ServiceInfo, Zeroconf

from hearth_controller.discover.sources import Announcement, listen

LOOPBACK = "127.0.0.1"


def announcement(kind: str, name: str, address: str, port: int) -> ServiceInfo:
    packed = [socket.inet_aton(address)]
    return ServiceInfo(kind, f"{name}.{kind}", port, addresses=packed, server=f"{name}.local.")


def test_a_machine_is_heard_with_the_port_of_its_ssh():
    with Zeroconf(interfaces=[LOOPBACK]) as home:
        home.register_service(announcement("_ssh._tcp.local.", "tower", "192.168.1.40", 2222))
        home.register_service(announcement("_workstation._tcp.local.", "desk", "192.168.1.41", 9))
        home.register_service(announcement("_http._tcp.local.", "printer", "192.168.1.42", 80))
        found, why = listen(1.5, [LOOPBACK])
    assert why == ""
    assert set(found) == {
        Announcement("tower", "192.168.1.40", 2222),
        Announcement("desk", "192.168.1.41", 22),
    }


@pytest.mark.parametrize("interfaces", [["203.0.113.1"]])
def test_no_network_is_said_and_no_error(interfaces):
    found, why = listen(0, interfaces)
    assert found == []
    assert "mDNS" in why


def test_without_the_library_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    found, why = listen()
    assert found == []
    assert "zeroconf" in why
