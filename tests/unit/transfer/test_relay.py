"""Real relays on loopback: a chain, a node killed on the way, a piece that was tampered with."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from support.cached_model import ID, NAME, make_cached, make_cached_shards
from support.facts import assert_names, refuses
from support.programs import run
from support.strangers import answers
from support.waiting import until

from hearth.base.errors import ModelError
from hearth.base.interface import Peer, free_port
from hearth.base.places import MANIFEST
from hearth.config import resolve
from hearth.config.presets import ModelSource
from hearth.model.cache import held_model
from hearth.model.folder import read_manifest
from hearth.model.stage import load_stage
from hearth.transfer.holding import Holding, arriving
from hearth.transfer.pieces import Table
from hearth.transfer.relay import RelayTask, made, start
from hearth.transfer.serving import FileServer, proof

SIZE = 24 << 20
SECRET = "of this test"
ADDRESSES = tuple(f"127.0.0.{n}" for n in range(1, 6))


class Node:
    """A node of the chain, with a folder and an address of its own."""

    def __init__(self, folder: Path, number: int) -> None:
        self.name, self.address = f"node{number}", ADDRESSES[number]
        self.folder = folder / self.name
        self.port = free_port(self.address)
        self.target = self.folder / "models" / NAME
        self.pid = 0

    @property
    def giver(self) -> Peer:
        return Peer(self.name, self.address, self.port)

    def begin(self, digest: str = "", givers: Sequence[Peer] = ()) -> dict[str, Any]:
        """Start this node's relay, and return its output."""
        self.folder.mkdir(exist_ok=True)
        answer = start(self.task(digest, givers), self.folder / "log")
        self.pid = answer["facts"].get("pid", 0)
        return answer

    def task(self, digest: str, givers: Sequence[Peer]) -> RelayTask:
        """Return the task of this node's relay."""
        return RelayTask(
            call="1",
            address=self.address,
            port=self.port,
            secret=SECRET,
            allowed=ADDRESSES,
            givers=tuple(givers),
            digest=digest,
            targets={"model": str(self.target)},
            keys=("model",),
            record=str(self.folder / "transfer.json"),
        )

    def record(self) -> dict[str, Any]:
        return json.loads((self.folder / "transfer.json").read_text())

    def until(self, state: str) -> dict[str, Any]:
        until(lambda: self.record()["state"] == state)
        return self.record()

    def kill(self) -> None:
        """End the relay as a power cut would."""
        relay = psutil.Process(self.pid)
        relay.kill()
        until(lambda: relay.status() == psutil.STATUS_ZOMBIE)


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture
def nodes(tmp_path) -> Iterator[list[Node]]:
    """Four nodes, the first with the model; their relays are ended by their ids."""
    before = {process.pid for process in psutil.Process().children()}
    found = [Node(tmp_path, number) for number in range(4)]
    make_cached(found[0].folder / "models", SIZE)
    yield found
    for process in psutil.Process().children():
        if process.pid not in before:
            process.kill()
            process.wait(10)


class Held(Holding):
    """A node's holding in this process that the test can limit and inspect."""

    def __init__(self, table: Table, target: Path) -> None:
        super().__init__(table.items[0], table.piece, target)
        self.use_whole()
        self.asked: list[tuple[int, int]] = []
        self.most = 1000
        self.spoilt: int | None = None

    def read(self, number: int, piece: int, seconds: float) -> bytes | None:
        if piece >= self.most:
            time.sleep(0.1)
            return None
        self.asked.append((number, piece))
        data = super().read(number, piece, seconds)
        return b"?" + data[1:] if piece == self.spoilt else data


@pytest.fixture
def giving(nodes) -> Iterator[FileServer]:
    """Serve at the first node's address from this process."""
    giving = FileServer(nodes[0].address, nodes[0].port, SECRET, ADDRESSES)
    giving.start()
    yield giving
    giving.stop()


@pytest.fixture
def held(nodes, giving) -> tuple[Table, Held]:
    """Give the first node's model from this process; return the server."""
    table = made(["model"], {"model": str(nodes[0].target)})
    held = Held(table, nodes[0].target)
    giving.show(table, [held])
    return table, held


def test_a_model_goes_down_the_chain_and_is_whole_at_every_node(nodes):
    sent = nodes[0].begin()
    assert sent["findings"] == []
    for place, node in enumerate(nodes[1:], start=1):
        chain = [each.giver for each in reversed(nodes[:place])]
        assert node.begin(sent["facts"]["digest"], chain)["findings"] == []
    for place, node in enumerate(nodes[1:], start=1):
        record = node.until("done")
        assert record["giver"] == nodes[place - 1].name
        assert record["sent"] == record["size"] == sent["facts"]["sizes"]["model"]
        assert weights(node.target) == weights(nodes[0].target)
        manifest = read_manifest(node.target / MANIFEST)
        assert manifest.fingerprint == read_manifest(nodes[0].target / MANIFEST).fingerprint
        assert not arriving(node.target).exists()


def test_of_many_shards_each_node_gets_those_that_it_lacks(nodes, tmp_path):
    shards = {f"{name}-fine.bin": name.encode() * (3 << 20) for name in "abc"}
    mine = {}
    for name, content in shards.items():
        (tmp_path / name).write_bytes(content)
        mine[name] = str(tmp_path / name)
    held = [mine, {"b-fine.bin": mine["b-fine.bin"]}, {}]
    digest = ""
    for place, (node, here) in enumerate(zip(nodes, held, strict=False)):
        chain = [each.giver for each in reversed(nodes[:place])]
        targets = {"data": str(node.folder / "data" / "0123-shards")}
        task = replace(node.task(digest, chain), keys=("data",), targets=targets, shards=here)
        node.folder.mkdir(exist_ok=True)
        answer = start(task, node.folder / "log")
        assert answer["findings"] == []
        digest = digest or answer["facts"]["digest"]
    for node, here in zip(nodes[1:], held[1:], strict=False):
        record = node.until("done")
        assert (record["sent"], record["here"]) == ((3 - len(here)) * 3 << 20, len(here) * 3 << 20)
        arrived = {path.name: path.read_bytes() for path in (node.folder / "data").glob("*.bin")}
        assert arrived == {name: shards[name] for name in shards.keys() - here.keys()}


def test_a_node_of_a_pipeline_gets_the_weights_of_its_layers(nodes, tmp_path, tiny_data):
    source, first, last = nodes[:3]
    shutil.rmtree(source.target)
    make_cached_shards(source.target.parent, layers=4)
    table = made(["model"], {"model": str(source.target)})
    assert source.begin()["facts"]["digest"] == table.digest

    def take(node, *layers):
        call = str(layers)  # the record of an earlier call lies there until this one begins
        task = replace(node.task(table.digest, [source.giver]), call=call, layers=layers, count=4)
        node.folder.mkdir(exist_ok=True)
        assert start(task, node.folder / "log")["findings"] == []
        written = node.folder / "transfer.json"
        until(lambda: written.exists() and node.record()["call"] == call)
        record = node.until("done")
        here = {path.name for path in node.target.glob("*.safetensors")}
        return record, {int(name[5:-12]) - 1 for name in here}

    assert take(first, (0, 2))[1] == {-1, 0, 1}
    assert take(last, (2, 3), (3, 4))[1] == {2, 3, 4}
    wanted = ModelSource(NAME, ID, "hub", revision="0123abcd")
    for node in (first, last):
        models = node.target.parent
        assert held_model(wanted, models) is None
        part = held_model(wanted, models, part=True)
        assert part.fingerprint == held_model(wanted, source.target.parent).fingerprint
    settings = resolve({"model": str(source.target), "dataset": str(tiny_data)}).settings
    device = torch.device("cpu")
    load_stage(settings, last.target, device, "fp32", range(2, 4), 4)
    with refuses(ModelError, last.target, "layers 1 to 3"):
        load_stage(settings, last.target, device, "fp32", range(1, 4), 4)
    # Other layers later: what is here stays, and is not sent again.
    record, here = take(last, (1, 4))
    assert here == {1, 2, 3, 4}
    (layer,) = (file for file in table.items[0].files if file.name == "part-2.safetensors")
    assert record["sent"] == layer.size
    record, here = take(last, (0, 4))
    assert here == {-1, 0, 1, 2, 3, 4}
    assert held_model(wanted, last.target.parent).absent == ()


def test_what_is_whole_already_is_not_sent(nodes, held):
    table, first = held
    shutil.copytree(nodes[0].target, nodes[1].target)
    nodes[1].begin(table.digest, [nodes[0].giver])
    record = nodes[1].until("done")
    assert (record["sent"], record["here"]) == (0, record["size"])
    assert first.asked == []


def test_a_node_killed_in_the_middle_goes_on_where_it_was(nodes, held):
    table, first = held
    first.most = 9
    nodes[1].begin(table.digest, [nodes[0].giver])
    arrived = arriving(nodes[1].target) / "model.safetensors"
    until(lambda: arrived.stat().st_size == 9 * table.piece)
    nodes[1].kill()
    assert not nodes[1].target.exists()
    first.most, first.asked = 1000, []
    nodes[1].begin(table.digest, [nodes[0].giver])
    record = nodes[1].until("done")
    assert record["here"] >= 9 * table.piece
    assert min(piece for number, piece in first.asked if number == 1) == 9
    assert weights(nodes[1].target) == weights(nodes[0].target)


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk of its own needs root")
def test_a_disk_that_fills_up_is_what_the_record_says(nodes, held, tmp_path):
    table, _ = held
    folder = nodes[1].folder
    folder.mkdir()
    task = nodes[1].task(table.digest, [nodes[0].giver])
    (tmp_path / "task").write_text(json.dumps(asdict(task)))
    script = (
        f"mount -t tmpfs -o size=8m tmpfs {folder} && "
        f"{sys.executable} -m hearth.transfer relay < {tmp_path}/task > /dev/null; "
        f"cat {folder}/transfer.json; echo; ls -A {folder}"
    )
    record, *left = run("unshare", "--mount", "sh", "-c", script).stdout.splitlines()
    assert json.loads(record)["state"] == "failed"
    assert_names(json.loads(record)["findings"][0], "No space left")
    assert left == ["models", "transfer.json"]


def test_a_second_call_takes_the_place_of_the_first(nodes, held):
    table, first = held
    first.most = 5
    earlier = nodes[1].begin(table.digest, [nodes[0].giver])["facts"]["pid"]
    until(lambda: len(first.asked) >= 5)
    first.most = 1000
    nodes[1].port = free_port(nodes[1].address)
    nodes[1].begin(table.digest, [nodes[0].giver])
    assert not psutil.pid_exists(earlier)
    nodes[1].until("done")


def test_the_chain_closes_around_a_node_that_dies_and_names_it(nodes, held):
    table, first = held
    first.most = 6
    nodes[1].begin(table.digest, [nodes[0].giver])
    nodes[2].begin(table.digest, [nodes[1].giver, nodes[0].giver])
    arrived = arriving(nodes[2].target) / "model.safetensors"
    until(lambda: arrived.stat().st_size == 6 * table.piece)
    nodes[1].kill()
    first.most = 1000
    record = nodes[2].until("done")
    assert [lost["name"] for lost in record["lost"]] == ["node1"]
    assert record["giver"] == "node0"
    assert weights(nodes[2].target) == weights(nodes[0].target)


def test_a_piece_that_was_tampered_with_is_refused_and_whoever_gave_it_is_named(nodes, held):
    table, first = held
    first.spoilt = 7
    nodes[1].begin(table.digest, [nodes[0].giver])
    (finding,) = nodes[1].until("failed")["findings"]
    assert_names(finding, "node0", "piece 8 of 13", "model.safetensors", "wrong checksum")
    assert not nodes[1].target.exists()
    assert (arriving(nodes[1].target) / "model.safetensors").stat().st_size == 7 * table.piece


def test_whoever_gives_wrong_pieces_is_passed_over(nodes, held):
    table, bad = held
    bad.spoilt = 3
    good = nodes[3]
    shutil.copytree(nodes[0].target, good.target)
    assert good.begin()["facts"]["digest"] == table.digest
    nodes[1].begin(table.digest, [nodes[0].giver, good.giver])
    record = nodes[1].until("done")
    assert [lost["name"] for lost in record["lost"]] == ["node0"]
    assert weights(nodes[1].target) == weights(nodes[0].target)


def test_another_table_than_the_expected_one_is_refused(nodes, held):
    nodes[1].begin("0" * 64, [nodes[0].giver])
    (finding,) = nodes[1].until("failed")["findings"]
    assert_names(finding, "node0", "table", "wrong checksum")


def test_a_stranger_gets_nothing_and_keeps_no_relay_alive(nodes, giving):
    assert not answers((nodes[0].address, nodes[0].port), "127.0.0.9")
    time.sleep(0.5)
    line = HTTPConnection(nodes[0].address, nodes[0].port, 5, source_address=(ADDRESSES[1], 0))
    line.request("GET", "/table", headers={"Authorization": proof("wrong", "/table")})
    assert line.getresponse().status == 403
    line.close()
    assert giving.idle > 0.5


def test_idle_connections_take_no_more_threads_than_the_nodes_need(nodes, giving):
    before = threading.active_count()
    place = (nodes[0].address, nodes[0].port)
    with ExitStack() as lines:
        for _ in range(60):
            lines.enter_context(socket.create_connection(place, source_address=(ADDRESSES[1], 0)))
        until(lambda: threading.active_count() > before)
        time.sleep(0.5)
        assert threading.active_count() - before <= 4 * len(ADDRESSES)
    until(lambda: threading.active_count() == before)
    assert answers(place, ADDRESSES[2])


def test_a_relay_knows_no_token(nodes, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "planted")
    nodes[0].begin()
    assert "planted" not in psutil.Process(nodes[0].pid).environ().values()


def test_a_port_that_is_taken_is_said(nodes, held):
    (finding,) = nodes[0].begin()["findings"]
    assert_names(finding, f"port {nodes[0].port}", "127.0.0.1")
