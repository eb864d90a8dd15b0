"""Real listeners on loopback, and nodes that test their links and the ports of a run."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from support.facts import assert_names
from support.strangers import answers
from support.waiting import until

from hearth.base.errors import LaunchError
from hearth.base.interface import Peer, free_port
from hearth.base.nvidia import gpus
from hearth.base.packet_filter import listening
from hearth.node import links, listener
from hearth.node.facts import facts_of_node
from hearth.node.inspection import IDLE, answering
from hearth.node.links import ask, in_turn, talk

ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    """Three nodes that listen, and are ended by their ids."""
    before = {process.pid for process in psutil.Process().children()}
    yield [
        Peer(f"node{n}", address, listener.start(address, ADDRESSES, idle=20))
        for n, address in enumerate(ADDRESSES)
    ]
    for process in psutil.Process().children():
        if process.pid not in before:
            process.kill()
            process.wait(10)


def test_everyone_answers_and_is_measured(peers):
    said = talk("node1", peers, speed=True)
    assert said.failed == {}
    assert set(said.milliseconds) == set(said.mbit) == {"node0", "node2"}
    assert all(0 < milliseconds < 1000 for milliseconds in said.milliseconds.values())
    assert all(mbit > 1 for mbit in said.mbit.values())


def test_while_a_run_is_under_way_no_speed_is_measured(peers):
    said = talk("node0", peers, speed=False)
    assert (said.mbit, set(said.milliseconds)) == ({}, {"node1", "node2"})


def test_a_closed_port_is_named_and_the_others_are_measured(peers):
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        closed = probe.getsockname()[1]
    said = talk("node0", [peers[0], Peer("node1", "127.0.0.2", closed), peers[2]], speed=True)
    assert list(said.failed) == ["node1"]
    assert_names(said.failed["node1"], "refused", "TCP")
    assert set(said.mbit) == {"node2"}


def test_a_stranger_gets_no_answer(peers):
    assert answers((peers[0].address, peers[0].port), "127.0.0.2")
    assert not answers((peers[0].address, peers[0].port), "127.0.0.9")


def test_a_listener_ends_by_itself_and_knows_no_token(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "planted")
    monkeypatch.setenv("HF_TOKEN", "planted")
    before = {process.pid for process in psutil.Process().children()}
    listener.start("127.0.0.1", ADDRESSES, idle=0.5)
    (child,) = [p for p in psutil.Process().children() if p.pid not in before]
    assert "planted" not in child.environ().values()
    child.wait(10)


def test_a_listener_stays_until_nobody_has_asked_for_its_idle_time(peers):
    time.sleep(1)  # It looks at the clock twice a second.
    assert talk("node0", peers, speed=False).failed == {}


def test_a_listener_ends_after_ten_minutes_whoever_is_connected(monkeypatch):
    assert (IDLE, listener.LONGEST) == (60, 600)
    monkeypatch.setattr(listener, "LONGEST", 0.1)
    with (
        listening("127.0.0.1", 0, ADDRESSES) as here,
        socket.create_connection(here.getsockname()),
    ):
        asyncio.run(asyncio.wait_for(listener._Listener(IDLE).serve(here), 10))


@pytest.mark.parametrize(("measure", "allowed"), [(False, ADDRESSES), (True, ADDRESSES[:1])])
def test_where_there_is_no_link_to_measure_nothing_listens(measure, allowed):
    assert answering({"measure": measure, "allowed": allowed, "address": "192.0.2.7"}) == {}


def test_each_node_begins_with_the_one_after_itself():
    peers = [Peer(name, "127.0.0.1", 1) for name in "abcd"]
    turns = ["".join(peer.name for peer in in_turn(own, peers)) for own in "abcd"]
    assert turns == ["bcd", "cda", "dab", "abc"]


def test_a_node_is_looked_at(tmp_path):
    system = tmp_path / "sys"
    for name, what in {
        "bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
        "bus/pci/devices/0000:01:00.0/class": "0x030000\n",
        "bus/pci/devices/0000:01:00.1/vendor": "0x10de\n",
        "bus/pci/devices/0000:01:00.1/class": "0x040300\n",  # the sound of the same card
        "class/net/lo/speed": "1000\n",
    }.items():
        (system / name).parent.mkdir(parents=True, exist_ok=True)
        (system / name).write_text(what)
    answer = facts_of_node("127.0.0.1", tmp_path, system=system)
    assert answer["findings"] == []
    known = answer["facts"]
    assert (known["cards"], known["interface"], known["nic_mbit"]) == (1, "lo", 1000)
    assert (known["cuda"] is None) == known["torch"].endswith("+cpu")
    assert known["busy"] is None


def test_gpus_are_what_the_driver_says(program):
    program(
        "nvidia-smi",
        "echo 'NVIDIA GeForce RTX 3070 Ti, 8192, 580.95.05, 8.6'\n"
        "echo 'NVIDIA GB10, [N/A], 580.95.05, 12.1'",
    )
    keys = ("name", "memory_mib", "driver", "capability")
    assert [tuple(gpu[key] for key in keys) for gpu in gpus()] == [
        ("NVIDIA GeForce RTX 3070 Ti", 8192, "580.95.05", "8.6"),
        ("NVIDIA GB10", None, "580.95.05", "12.1"),
    ]


def test_an_address_that_is_not_here_is_a_finding(tmp_path):
    assert "192.0.2.7" in facts_of_node("192.0.2.7", tmp_path)["findings"][0]


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
