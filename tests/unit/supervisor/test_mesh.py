"""The mesh of supervisors over real sockets on loopback."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import ExitStack, asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import refuses
from support.rubbish import LITTLE, answerer, quick, rubbish, send, send_endlessly
from support.strangers import answers
from support.supervisors import free_port

from hearth.base.errors import LaunchError
from hearth.supervisor import mesh
from hearth.supervisor.decisions.events import Gone, Joined, PeerSaid
from hearth.supervisor.mesh import Mesh
from hearth.supervisor.messages import (
    MOST_CALLERS,
    Beat,
    Challenge,
    Hello,
    NodeReport,
    NotAdmitted,
    NotYet,
    ProtocolError,
    Stop,
    Welcome,
    encode,
)
from hearth.supervisor.spec import spec_of

NODES = ["desk", "laptop", "tower"]
SILENCE = 1.0
HANG = 20.0
REFUSALS = (ProtocolError, NotYet, OSError)
"""The mesh's own ends of a call."""


class Node:
    """One node of the mesh, with its queue and its log."""

    def __init__(self, name: str, ports: list[int], **changes):
        rank = NODES.index(name)
        given = {
            "run": "first",
            "node": name,
            "rank": rank,
            "nodes": NODES[: len(ports)],
            "addresses": [f"127.0.0.{n + 1}" for n in range(len(ports))],
            "nproc": 1,
            "python": "python",
            "workspace": "/nowhere",
            "token": "secret",
            "silence_timeout": SILENCE,
            "resident": True,
            "ports": ports,
            "nprocs": [1] * len(ports),
        }
        self.name, self.said = name, []
        self.events: asyncio.Queue = asyncio.Queue()
        spec = spec_of(given | changes, name)
        self.stuck = False
        self.peers = Mesh(spec, self.events, self.said.append, self._spawn, lambda: self.stuck)

    def _spawn(self, work) -> asyncio.Task:
        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # which would end the run
                self.said.append(f"a bug: {error!r}")

        return asyncio.create_task(guarded())

    async def until(self, *expected) -> None:
        """Wait for these events, in any order; others, but a refused connection, are wrong."""
        left = list(expected)
        async with asyncio.timeout(HANG):
            while left:
                event = await self.events.get()
                if isinstance(event, Gone) and event.why.startswith("refused"):
                    continue
                assert event in left, (self.name, event, left)
                left.remove(event)


@asynccontextmanager
async def connected(count: int, **changes):
    """Open a mesh of connected nodes, and close it in the end."""
    ports = [free_port() for _ in range(count)]
    nodes = {name: Node(name, ports, **changes) for name in NODES[:count]}
    try:
        for node in nodes.values():
            await node.peers.open()
        for name, node in nodes.items():
            await node.until(*(Joined(other) for other in nodes if other != name))
        yield nodes
    finally:
        for node in nodes.values():
            await node.peers.close()


def play(scene) -> None:
    asyncio.run(asyncio.wait_for(scene(), 60))


@pytest.mark.parametrize("name", ["desk", "tower"])
def test_a_node_whose_supervisor_is_stuck_is_silent_until_it_goes_on(name):
    async def scene():
        async with connected(3) as nodes:
            stuck, *others = sorted(nodes.values(), key=lambda node: node.name != name)
            stuck.stuck = True
            async with asyncio.timeout(HANG):
                for node in others:
                    event = await node.events.get()
                    assert (type(event), event.node) == (Gone, name)
                    assert event.why.startswith("silent")
            await asyncio.sleep(2 * mesh.REDIAL)
            assert all(node.events.empty() for node in others)
            stuck.stuck = False
            for node in others:
                await node.until(Joined(name))

    play(scene)


def test_all_are_connected_and_hear_each_other():
    async def scene():
        async with connected(3) as nodes:
            asked = Stop("laptop")
            nodes["laptop"].peers.tell_all(asked)
            nodes["tower"].peers.tell("desk", asked)
            await nodes["desk"].until(PeerSaid("laptop", asked), PeerSaid("tower", asked))
            await nodes["tower"].until(PeerSaid("laptop", asked))
            assert nodes["tower"].peers.connected == ("desk", "laptop")
            # Both nodes are one computer, which connects from its first address.
            assert nodes["desk"].peers.source("tower") == "127.0.0.1"
            await asyncio.sleep(2 * SILENCE)
            assert all(node.events.empty() for node in nodes.values())

    play(scene)


@pytest.mark.parametrize("victim", ["desk", "laptop"])
def test_who_is_gone_is_noticed_at_once_and_joins_again(victim):
    async def scene():
        async with connected(2) as nodes:
            (other,) = set(nodes) - {victim}
            ports = nodes[victim].peers._spec.ports
            clock = asyncio.get_running_loop().time
            began = clock()
            await nodes[victim].peers.close()
            await nodes[other].until(Gone(victim, "broke off"))
            assert clock() - began < SILENCE
            nodes[victim] = again = Node(victim, list(ports))
            await again.peers.open()
            await nodes[other].until(Joined(victim))
            await again.until(Joined(other))

    play(scene)


def silenced(node: Node) -> None:
    """Have a node send nothing more, heartbeats included, while its connections stay."""
    node.peers.tell_all = lambda message: None


def test_who_is_silent_is_gone_after_the_timeout():
    async def scene():
        async with connected(2) as nodes:
            silenced(nodes["laptop"])
            async with asyncio.timeout(HANG):
                event = await nodes["desk"].events.get()
            assert event.node == "laptop"
            assert event.why.startswith("silent for 1 s")
            await nodes["laptop"].until(Gone("desk", "broke off"))

    play(scene)


def test_a_silence_shorter_than_the_timeout_is_nothing():
    async def scene():
        async with connected(2, silence_timeout=3.0) as nodes:
            beat = nodes["laptop"].peers.tell_all
            silenced(nodes["laptop"])
            await asyncio.sleep(1.5)
            nodes["laptop"].peers.tell_all = beat
            await asyncio.sleep(2.5)
            assert all(node.events.empty() for node in nodes.values())

    play(scene)


def test_who_was_suspended_itself_is_cut_off_and_joins_again(monkeypatch):
    async def scene():
        async with connected(2, silence_timeout=5.0) as nodes:
            jump, real = 0.0, mesh.boot_clock
            monkeypatch.setattr(mesh, "boot_clock", lambda: real() + jump)
            jump = 60.0
            for name, other in (("desk", "laptop"), ("laptop", "desk")):
                event = await asyncio.wait_for(nodes[name].events.get(), HANG)
                assert event.node == other
                assert event.why == "broke off" or event.why.startswith(
                    "suspended or stopped for 6"
                )
                await nodes[name].until(Joined(other))
            assert any("itself was suspended" in line for line in nodes["desk"].said)

    play(scene)


def test_another_runs_token_is_refused_by_both_and_said_once():
    async def scene():
        ports = [free_port(), free_port()]
        desk, laptop = Node("desk", ports), Node("laptop", ports, token="another")
        for node in (desk, laptop):
            await node.peers.open()
        async with asyncio.timeout(HANG):
            while desk.peers.why_absent("laptop").startswith("laptop does not answer") or (
                laptop.peers.why_absent("desk").startswith("desk does not answer")
            ):
                await asyncio.sleep(0.05)
        await asyncio.sleep(1.2)  # two more attempts
        why = "the token is not that of run 'first'"
        assert laptop.peers.why_absent("desk") == f"desk does not let laptop in: {why}"
        for node, address in ((desk, "127.0.0.2"), (laptop, "127.0.0.1")):
            away, refused = sorted(node.said, key=lambda line: "away" not in line)
            assert f"away {address}: the token" in away
            assert "does not let" in refused
        assert "secret" not in " ".join(desk.said + laptop.said)
        for node in (desk, laptop):
            await node.peers.close()
            assert node.events.empty()

    play(scene)


def test_a_machine_without_a_supervisor_says_so_whoever_dials():
    async def scene():
        ports = [free_port(), free_port()]
        for name, other in (("desk", "laptop"), ("laptop", "desk")):
            node = Node(name, ports)
            await node.peers.open()
            event = await asyncio.wait_for(node.events.get(), HANG)
            assert event.node == other
            assert event.why.startswith("refused")
            await node.peers.close()

    play(scene)


def test_whatever_strangers_send_disturbs_nobody():
    async def scene():
        async with connected(2, silence_timeout=10.0) as nodes:
            place = ("127.0.0.1", nodes["desk"].peers._spec.ports[0])

            @quick
            @given(rubbish(Hello, Welcome, NodeReport, Stop, Beat))
            def sent(content: bytes) -> None:
                send(place, content)

            assert not await asyncio.to_thread(answers, place, "127.0.0.9")
            await asyncio.to_thread(sent)
            assert await asyncio.to_thread(send_endlessly, place) < LITTLE
            await asyncio.sleep(0.2)
            assert nodes["desk"].peers.connected == ("laptop",)
            assert all(node.events.empty() for node in nodes.values())
            (said,) = nodes["desk"].said
            assert "turned away 127.0.0.1" in said

    play(scene)


@pytest.mark.parametrize(("sent", "refused"), [(b"", False), (b"rubbish\n", True)])
def test_only_a_node_that_says_something_wrong_was_turned_away(monkeypatch, sent, refused):
    monkeypatch.setattr(mesh, "HANDSHAKE_TIMEOUT", 0.1)

    async def scene():
        desk = Node("desk", [free_port(), free_port()])
        await desk.peers.open()
        unknown = desk.peers.why_absent("laptop")
        place = ("127.0.0.1", desk.peers._spec.ports[0])
        with socket.create_connection(place, source_address=("127.0.0.2", 0)) as line:
            line.sendall(sent)
            while not desk.said:
                await asyncio.sleep(0.01)
        assert (desk.peers.why_absent("laptop") != unknown) == refused
        await desk.peers.close()

    play(scene)


def test_strangers_who_hold_connections_keep_no_node_out():
    async def scene():
        ports = [free_port(), free_port()]
        desk, laptop = Node("desk", ports), Node("laptop", ports)
        await desk.peers.open()
        with ExitStack() as lines:
            for _ in range(3 * MOST_CALLERS):
                lines.enter_context(socket.create_connection(("127.0.0.1", ports[0])))
                await asyncio.sleep(0)
            await laptop.peers.open()
            await laptop.until(Joined("desk"))
            assert len(desk.peers._callers._waiting) <= MOST_CALLERS
        for node in (desk, laptop):
            await node.peers.close()
            assert not any("a bug" in line for line in node.said)

    play(scene)


def test_whatever_answers_at_the_port_of_a_node_ends_nothing():
    """Also after a valid challenge."""

    async def scene():
        node = Node("laptop", [free_port(), free_port()])

        @quick
        @given(rubbish(Challenge, Welcome, NotAdmitted, NodeReport), st.booleans())
        def called(content: bytes, challenged: bool) -> None:
            first = encode(Challenge("0")) if challenged else b""
            with answerer(first + content) as place, suppress(*REFUSALS):
                asyncio.run(asyncio.wait_for(node.peers._call(*place), 5))
                pytest.fail("a stranger was taken for a node")

        await asyncio.to_thread(called)
        said = json.dumps({"type": "NotAdmitted", "reason": "\x1b[2Jgo\x07"}).encode() + b"\n"
        with answerer(encode(Challenge("0")) + said) as place:
            with refuses(ProtocolError, "go") as refused:
                await node.peers._call(*place)
            assert "\x1b" not in str(refused.value)

    play(scene)


def test_a_node_that_is_gone_has_no_source():
    async def scene():
        async with connected(2) as nodes:
            assert nodes["desk"].peers.source("laptop").startswith("127.0.0.")
            with refuses(ConnectionError, "tower"):
                nodes["desk"].peers.source("tower")

    play(scene)


def test_a_taken_port_is_named():
    async def scene():
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with refuses(LaunchError, f"port {port}", "127.0.0.1"):
                await Node("desk", [port, free_port()]).peers.open()

    play(scene)
