"""A checkpoint that is brought from the disk of another node, over a network of function calls."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.facts import assert_names

from hearth.supervisor import checkpoint_transfer
from hearth.supervisor.checkpoint_transfer import PIECE, CheckpointTransfer
from hearth.supervisor.messages import Ask, Given, decode, encode

SIZES = {"adapter/model.safetensors": 3 * PIECE + 7, "checkpoint.json": 40, "empty": 0}


def checkpoint(folder: Path, step: int) -> dict[str, bytes]:
    """Make a checkpoint after so many steps; return the content of its files."""
    made = {}
    for name, size in SIZES.items():
        path = folder / f"step-{step:08d}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        made[name] = bytes((step + n) % 251 for n in range(size))
        path.write_bytes(made[name])
    return made


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def bring(own: Path, **folders: Path) -> str:
    """Bring the newest checkpoint of these nodes into a folder; every message is a line."""

    async def scene() -> str:
        def tell(node: str, message: Ask | Given) -> None:
            assert isinstance(message, Ask)
            answer = givers[node].give(decode(encode(message)))
            line = encode(answer)
            assert len(line) < 1 << 16
            asyncio.get_running_loop().call_soon(asking.given, node, decode(line))

        asking = CheckpointTransfer(own, tell)
        givers = {
            node: CheckpointTransfer(folder, lambda *_: None) for node, folder in folders.items()
        }
        return await asking.bring(folders)

    return asyncio.run(scene())


def test_the_newest_checkpoint_of_any_node_is_brought_whole(tmp_path):
    checkpoint(tmp_path / "own", 20)
    checkpoint(tmp_path / "desk", 40)
    newest = checkpoint(tmp_path / "shelf", 57)
    said = bring(tmp_path / "own", desk=tmp_path / "desk", shelf=tmp_path / "shelf")
    assert_names(said, "shelf", "step-00000057")
    assert files(tmp_path / "own" / "step-00000057") == newest
    assert {path.name for path in (tmp_path / "own").iterdir()} == {
        "step-00000020",
        "step-00000057",
    }


@pytest.mark.parametrize("theirs", [None, 20, 57])
def test_nothing_is_brought_that_is_not_newer(tmp_path, theirs):
    before = checkpoint(tmp_path / "own", 57)
    if theirs:
        checkpoint(tmp_path / "desk", theirs)
    assert bring(tmp_path / "own", desk=tmp_path / "desk") == ""
    assert files(tmp_path / "own" / "step-00000057") == before


def test_a_node_without_any_checkpoint_gets_the_first(tmp_path):
    newest = checkpoint(tmp_path / "desk", 3)
    bring(tmp_path / "own", desk=tmp_path / "desk")
    assert files(tmp_path / "own" / "step-00000003") == newest


def test_a_node_that_does_not_answer_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_transfer, "PATIENCE", 0.05)
    newest = checkpoint(tmp_path / "desk", 3)

    async def scene() -> str:
        def tell(node: str, message: Ask) -> None:
            if node == "desk":
                answer = giver.give(message)
                asyncio.get_running_loop().call_soon(asking.given, node, answer)

        asking = CheckpointTransfer(tmp_path / "own", tell)
        giver = CheckpointTransfer(tmp_path / "desk", tell)
        return await asking.bring(["laptop", "desk"])

    assert_names(asyncio.run(scene()), "desk")
    assert files(tmp_path / "own" / "step-00000003") == newest


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a/../../secret", "", "x\0y"])
def test_no_file_outside_the_checkpoints_is_given_away_or_written(tmp_path, name):
    folder = tmp_path / "checkpoints"
    checkpoint(folder, 3)
    (tmp_path / "secret").write_text("secret")
    giver = CheckpointTransfer(folder, lambda *_: None)
    assert giver.give(Ask("step-00000003", name)).data == ""
    assert giver.give(Ask("..", "secret")).data == ""

    async def scene() -> str:
        def tell(node: str, ask: Ask) -> None:
            answer = Given(ask, folder="step-00000009", files={name: 6})
            if ask.folder:
                answer = Given(ask, data="c2VjcmV0")
            asyncio.get_running_loop().call_soon(asking.given, node, answer)

        asking = CheckpointTransfer(folder, tell)
        return await asking.bring(["desk"])

    assert_names(asyncio.run(scene()), "desk", "could not be brought")
    assert [path.name for path in folder.iterdir()] == ["step-00000003"]
    assert (tmp_path / "secret").read_text() == "secret"


def test_a_checkpoint_that_changes_on_the_way_is_not_kept(tmp_path):
    checkpoint(tmp_path / "desk", 3)

    async def scene() -> str:
        def tell(node: str, ask: Ask) -> None:
            answer = giver.give(ask)
            if not ask.folder:
                (tmp_path / "desk/step-00000003/checkpoint.json").unlink()
            asyncio.get_running_loop().call_soon(asking.given, node, answer)

        asking, giver = (
            CheckpointTransfer(tmp_path / "own", tell),
            CheckpointTransfer(tmp_path / "desk", tell),
        )
        return await asking.bring(["desk"])

    assert_names(asyncio.run(scene()), "desk", "checkpoint.json")
    assert [*(tmp_path / "own").iterdir()] == []
