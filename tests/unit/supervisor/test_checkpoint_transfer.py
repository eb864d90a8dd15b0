"""A checkpoint that is brought from the disk of another node, over loopback."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.facts import assert_names
from support.strangers import answers
from support.waiting import until

from hearth.supervisor import checkpoint_transfer
from hearth.supervisor.checkpoint_transfer import CheckpointTransfer
from hearth.supervisor.decisions.voting import Votes
from hearth.supervisor.messages import NodeReport, file_key
from hearth.supervisor.spec import spec_of
from hearth.transfer import checkpoints
from hearth.transfer.chain import SPARE
from hearth.transfer.fetching import FileClient
from hearth.transfer.holding import Holding, arriving
from hearth.transfer.pieces import PIECE, Table
from hearth.transfer.serving import FileServer

NODES = ["own", "desk", "shelf"]
SIZES = {"adapter/model.safetensors": 3 * PIECE + 7, "checkpoint.json": 40, "empty": 0}
BULK = "adapter/model.safetensors"


def spec(place: Path, node: str, **changes: object):
    given = {
        "run": "first",
        "node": node,
        "rank": NODES.index(node),
        "nodes": NODES,
        "addresses": [f"127.0.0.{number}" for number in range(1, 4)],
        "nproc": 1,
        "python": "python",
        "workspace": str(place / node),
        "token": "secret",
        "ports": [1, 2, 3],
        "nprocs": [1, 1, 1],
    }
    return spec_of(given | changes, node)


def folder_of(place: Path, node: str) -> Path:
    return spec(place, node).checkpoints


def checkpoint(place: Path, node: str, step: int) -> dict[str, bytes]:
    """Make a node's checkpoint after these steps; return the content of its files."""
    made = {}
    for name, size in SIZES.items():
        path = folder_of(place, node) / f"step-{step:08d}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        made[name] = (bytes((step + n) % 251 for n in range(251)) * (size // 251 + 1))[:size]
        path.write_bytes(made[name])
    return made


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def holds(node: str, checkpoint: str, port: int) -> NodeReport:
    return NodeReport(node, "away", Votes(), serves=port, checkpoint=checkpoint)


def test_the_newest_checkpoint_is_looked_for_only_where_the_folder_has_changed(
    tmp_path, monkeypatch
):
    listings = []

    def newest_name(folder: Path) -> str:
        listings.append(folder)
        return checkpoints.newest_name(folder)

    monkeypatch.setattr(checkpoint_transfer, "newest_name", newest_name)
    transfer, folder = CheckpointTransfer(spec(tmp_path, "own")), folder_of(tmp_path, "own")
    assert transfer.newest() == ""
    checkpoint(tmp_path, "own", 7)
    assert transfer.newest() == "step-00000007"
    checkpoint(tmp_path, "own", 8)  # at once, perhaps at the same time of a coarse clock
    assert transfer.newest() == "step-00000008"
    os.utime(folder, (1, 1))
    listings.clear()
    for _ in range(20):
        assert transfer.newest() == "step-00000008"
    assert len(listings) == 1
    shutil.rmtree(folder / "step-00000008")
    assert transfer.newest() == "step-00000007"


@contextmanager
def serving(place: Path, *nodes: str, **changes: object) -> Iterator[dict[str, NodeReport]]:
    """Serve the checkpoints of nodes; yield their messages."""
    with ExitStack() as servers:
        held = {}
        for node in nodes:
            transfer = CheckpointTransfer(spec(place, node, **changes))
            transfer.open()
            servers.callback(lambda one=transfer: asyncio.run(one.close()))
            held[node] = holds(node, transfer.newest(), transfer.port)
        yield held


def bring(place: Path, held: dict[str, NodeReport]) -> str:
    return asyncio.run(CheckpointTransfer(spec(place, "own")).bring(held))


def test_the_newest_checkpoint_of_any_node_is_brought_whole(tmp_path):
    checkpoint(tmp_path, "own", 20)
    checkpoint(tmp_path, "desk", 40)
    newest = checkpoint(tmp_path, "shelf", 57)
    with serving(tmp_path, "desk", "shelf") as held:
        assert_names(bring(tmp_path, held), "shelf", "step-00000057")
    own = folder_of(tmp_path, "own")
    assert files(own / "step-00000057") == newest
    assert {path.name for path in own.iterdir()} == {"step-00000020", "step-00000057"}


@pytest.mark.parametrize("theirs", [None, 20, 57])
def test_nothing_is_brought_that_is_not_newer(tmp_path, theirs):
    before = checkpoint(tmp_path, "own", 57)
    if theirs:
        checkpoint(tmp_path, "desk", theirs)
    with serving(tmp_path, "desk") as held:
        assert bring(tmp_path, held) == ""
    assert files(folder_of(tmp_path, "own") / "step-00000057") == before


def test_a_node_without_any_checkpoint_gets_the_first(tmp_path):
    newest = checkpoint(tmp_path, "desk", 3)
    with serving(tmp_path, "desk") as held:
        bring(tmp_path, held)
    assert files(folder_of(tmp_path, "own") / "step-00000003") == newest


def test_a_node_that_does_not_answer_is_passed_over(tmp_path):
    checkpoint(tmp_path, "shelf", 9)
    older = checkpoint(tmp_path, "desk", 3)
    with serving(tmp_path, "shelf") as gone:
        pass
    with serving(tmp_path, "desk") as held:
        assert_names(bring(tmp_path, held | gone), "shelf", "step-00000009", "desk")
    assert files(folder_of(tmp_path, "own") / "step-00000003") == older


def test_who_does_not_know_the_runs_key_gets_no_checkpoint_and_sends_none(tmp_path):
    checkpoint(tmp_path, "desk", 3)
    with serving(tmp_path, "desk", token="another") as held:
        assert_names(bring(tmp_path, held), "desk", "could not be brought")
    assert not [*folder_of(tmp_path, "own").glob("*")]


def test_only_the_nodes_are_answered(tmp_path):
    with serving(tmp_path, "desk") as held:
        place = ("127.0.0.2", held["desk"].serves)
        assert answers(place, "127.0.0.3")
        assert not answers(place, "127.0.0.9")


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a/../../secret", "", "x\0y"])
def test_no_file_outside_the_checkpoints_is_given_away_or_written(tmp_path, name):
    checkpoint(tmp_path, "desk", 3)
    folder = folder_of(tmp_path, "desk")
    (folder / "secret").write_text("secret")
    secret = file_key("secret")
    server = checkpoints.CheckpointServer("127.0.0.2", secret, ["127.0.0.1"], folder)
    for odd in ("..", "secret", "step-00000003/..", "step-1\n"):
        assert server.offer(odd) is None
    server.server_close()
    # A table that names another file is refused, although it has the run's proof.
    table = Table.of(_text(folder / "step-00000003"))
    odd = replace(table.items[0], files=(replace(table.items[0].files[0], name=name),))
    giver = FileServer("127.0.0.2", 0, secret, ["127.0.0.1"])
    giver.show(replace(table, items=(odd,)), [Holding(odd, PIECE, folder)], "step-00000009")
    giver.start()
    said = bring(tmp_path, {"desk": holds("desk", "step-00000009", giver.port)})
    giver.stop()
    assert_names(said, "desk", "could not be brought")
    assert not [*folder_of(tmp_path, "own").glob("*")]


def _text(path: Path) -> str:
    """Return the text of the table of a checkpoint."""
    names = [str(file.relative_to(path)) for file in sorted(path.rglob("*")) if file.is_file()]
    cuts = tuple(checkpoints.cut(path / name, PIECE, name) for name in names)
    return Table(PIECE, (checkpoints.Item("checkpoint", path.name, cuts, {}),)).text()


def test_a_checkpoint_that_changes_on_the_way_is_not_kept(tmp_path, monkeypatch):
    checkpoint(tmp_path, "desk", 3)
    changed = folder_of(tmp_path, "desk") / "step-00000003/checkpoint.json"
    real = FileClient.table

    def table(self: FileClient) -> Table:
        found = real(self)
        changed.write_bytes(b"?" * SIZES["checkpoint.json"])
        return found

    monkeypatch.setattr(FileClient, "table", table)
    with serving(tmp_path, "desk") as held:
        assert_names(bring(tmp_path, held), "desk", "checkpoint.json")
    assert not [*folder_of(tmp_path, "own").glob("step-*")]


def test_a_transfer_that_broke_off_is_no_checkpoint_and_goes_on_where_it_was(tmp_path, monkeypatch):
    newest = checkpoint(tmp_path, "desk", 3)
    own, asked = folder_of(tmp_path, "own"), []
    real = FileClient.piece

    def piece(self: FileClient, path: str, *rest: str) -> bytes:
        asked.append(path)
        if len(asked) == 3:
            raise OSError("the cable")
        return real(self, path, *rest)

    monkeypatch.setattr(FileClient, "piece", piece)
    with serving(tmp_path, "desk") as held:
        assert_names(bring(tmp_path, held), "could not be brought", "the cable")
        assert checkpoints.newest_name(own) == ""
        assert [path.name for path in own.iterdir()] == [".step-00000003.arriving"]
        kept, asked[:] = asked[:2], []
        monkeypatch.setattr(
            FileClient, "piece", lambda *given: (asked.append(given[1]), real(*given))[1]
        )
        assert_names(bring(tmp_path, held), "desk", "brought")
    assert files(own / "step-00000003") == newest
    assert not {*kept} & {*asked}


def test_a_disk_without_room_is_said_and_not_filled(tmp_path, monkeypatch):
    checkpoint(tmp_path, "desk", 3)
    full = shutil.disk_usage(tmp_path)._replace(free=SPARE)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with serving(tmp_path, "desk") as held:
        assert_names(bring(tmp_path, held), "no room", str(folder_of(tmp_path, "own")))
    assert not [*folder_of(tmp_path, "own").glob("*")]


@pytest.mark.parametrize("theirs", [2, 9])
def test_what_is_left_of_another_checkpoint_is_removed(tmp_path, theirs):
    checkpoint(tmp_path, "own", 4)
    checkpoint(tmp_path, "desk", theirs)
    left = arriving(folder_of(tmp_path, "own") / "step-00000003")
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"half")
    with serving(tmp_path, "desk") as held:
        bring(tmp_path, held)
    assert not left.exists()
    assert checkpoints.newest_name(folder_of(tmp_path, "own")) == f"step-{max(4, theirs):08d}"


def test_a_record_that_has_grown_since_arrives_as_it_was(tmp_path, monkeypatch):
    newest = checkpoint(tmp_path, "desk", 3)
    real = FileClient.table

    def table(self: FileClient) -> Table:
        found = real(self)
        with (folder_of(tmp_path, "desk") / f"step-00000003/{BULK}").open("ab") as file:
            file.write(b"more")
        return found

    monkeypatch.setattr(FileClient, "table", table)
    with serving(tmp_path, "desk") as held:
        bring(tmp_path, held)
    assert files(folder_of(tmp_path, "own") / "step-00000003") == newest


def test_the_server_ends_with_its_connections_and_threads(tmp_path):
    before = threading.active_count()
    with serving(tmp_path, "desk") as held:
        place = ("127.0.0.2", held["desk"].serves)
        line = socket.create_connection(place, 5, source_address=("127.0.0.1", 0))
        until(lambda: threading.active_count() > before + 1)
    assert line.recv(1) == b""
    line.close()
    until(lambda: threading.active_count() == before)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place, 5, source_address=("127.0.0.1", 0))


def test_two_calls_at_once_share_one_transfer(tmp_path):
    newest = checkpoint(tmp_path, "desk", 3)

    async def scene(held: dict[str, NodeReport]) -> list[str]:
        own = CheckpointTransfer(spec(tmp_path, "own"))
        first = asyncio.create_task(own.bring(held))
        await asyncio.sleep(0)
        second = asyncio.create_task(own.bring(held))
        await asyncio.sleep(0)
        first.cancel()  # its ranks are started anew
        return await asyncio.gather(first, second, return_exceptions=True)

    with serving(tmp_path, "desk") as held:
        cancelled, said = asyncio.run(scene(held))
    assert isinstance(cancelled, asyncio.CancelledError)
    assert_names(said, "desk", "step-00000003")
    assert files(folder_of(tmp_path, "own") / "step-00000003") == newest
