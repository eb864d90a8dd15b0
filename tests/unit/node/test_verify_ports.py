"""Nodes on loopback that ask each other for the ports of a run."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.facts import assert_names
from support.strangers import answers
from support.waiting import until

from hearth.base.errors import LaunchError
from hearth.base.interface import Peer, free_port
from hearth.node import links
from hearth.node.links import ask

PEERS = [Peer(f"node{n}", f"127.0.0.{n}", free_port(f"127.0.0.{n}")) for n in (1, 2, 3)]


@pytest.fixture(autouse=True)
def seconds(monkeypatch):
    monkeypatch.setattr(links, "SILENCE", 1.5)


def test_nodes_that_begin_one_after_another_all_answer_and_leave_their_ports_free():
    with ThreadPoolExecutor() as threads:
        asked = []
        for peer in PEERS:
            asked.append(threads.submit(ask, peer.name, PEERS))
            time.sleep(0.3)
        assert [each.result(20) for each in asked] == [{}, {}, {}]
    assert [free_port(each.address, each.port) for each in PEERS] == [each.port for each in PEERS]


def test_a_port_that_swallows_new_connections_is_named_and_the_others_are_not():
    here, deaf, other = PEERS
    with socket.create_server((deaf.address, deaf.port), backlog=0) as full:
        # Its queue is full, so that the kernel drops what comes, as a firewall would.
        waiting = [socket.create_connection(full.getsockname(), 5)]
        answering = threading.Thread(target=ask, args=(other.name, [here, other]))
        answering.start()
        began = time.monotonic()
        failed = ask(here.name, PEERS)
        answering.join()
        waiting[0].close()
    assert list(failed) == [deaf.name]
    assert_names(failed[deaf.name], "no answer", "TCP")
    assert time.monotonic() - began < 10


def test_a_port_answers_no_stranger_and_closes_what_a_node_opens():
    here, other = PEERS[:2]
    place = (here.address, here.port)
    with ThreadPoolExecutor() as threads:
        threads.submit(ask, here.name, PEERS[:2], patience=3)
        until(lambda: answers(place, other.address))
        assert not answers(place, "127.0.0.9")
        with socket.create_connection(place, 5, source_address=(other.address, 0)) as client:
            assert client.recv(1) == b""  # it is closed before the client has sent anything


def test_a_port_that_refuses_is_named_once_its_node_had_the_time_to_listen():
    assert_names(ask(PEERS[0].name, PEERS[:2], patience=0.5)[PEERS[1].name], "refused", "TCP")


def test_a_port_that_another_program_has_taken_meanwhile_is_a_finding():
    taken = PEERS[0]
    with (
        socket.create_server((taken.address, taken.port)),
        pytest.raises(LaunchError, match=f"port {taken.port} of {taken.address}"),
    ):
        ask(taken.name, PEERS)
