"""The files of a run on their way from a node: any name, any fault."""

from __future__ import annotations

import os
import sys
from importlib import resources
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.facts import assert_names
from support.login import NOISE, login

from hearth.record.send import NOT_SENT, send
from hearth_controller.base.node_program import NodeProgram
from hearth_controller.runs.collect import collect, unpacked

PROGRAM = resources.files("hearth.record").joinpath("send.py").read_text()
FILES = {"logs/desk.log": "logs/r1.log", "files/desk": "results/r1/files", "model": "no/model"}


@pytest.fixture
def workspace(tmp_path):
    """A node's workspace with a log and a folder of files that have odd names."""
    folder = tmp_path / "node" / "results" / "r1" / "files"
    for name in (b"a\nb", "é".encode(), b"\xff", b"deep/" + b"x" * 200):
        path = os.path.join(os.fsencode(folder), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(name * 5000)
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/etc/passwd")
    (tmp_path / "node" / "logs").mkdir()
    (tmp_path / "node" / "logs" / "r1.log").write_text("a word\n")
    return tmp_path / "node"


def contents(folder):
    """Return the regular files below a folder, with their contents."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder): path.read_bytes() for path in paths}


def archive_of(workspace):
    written = BytesIO()
    send({"workspace": str(workspace), "files": FILES}, written)
    written.seek(0)
    return written


def test_nothing_is_written_outside_the_folder_and_nothing_that_was_not_requested(tmp_path):
    paths = (
        "files/desk/a",
        "files/desk/../../../../b",
        "files/desk/c\0d",
        "model/e",
        "files/desk/f",
    )
    sent = SimpleNamespace(files=lambda limit: [(path, BytesIO(b"x")) for path in paths])
    into = tmp_path / "deep" / "into"
    into.mkdir(parents=True)
    assert list(unpacked(sent, ["files/desk", "logs"], into)) == ["files/desk"]
    assert contents(tmp_path).keys() == {
        Path("deep/into/files/desk/a"),
        Path("deep/into/files/desk/f"),
    }


@pytest.mark.parametrize("bashrc", NOISE)
def test_files_of_any_name_arrive_whatever_the_login_shell_prints(tmp_path, workspace, bashrc):
    here, request = tmp_path / "here", {"workspace": str(workspace), "files": FILES}
    program = NodeProgram(login(tmp_path, bashrc), sys.executable, PROGRAM, request)
    assert collect(here, FILES, program) == (True, ["logs/desk.log", "files/desk"], "")
    assert program.close() == []
    files = contents(workspace / "results" / "r1" / "files")
    assert contents(here / "files" / "desk") == files
    assert len(files) == 4
    assert (here / "logs" / "desk.log").read_text() == "a word\n"
    assert collect(here, FILES, archive_of(workspace))[0] is False


def test_a_file_that_vanishes_meanwhile_is_left_out(tmp_path, workspace):
    class Vanishing(BytesIO):
        def write(self, data):
            (workspace / "results" / "r1" / "files" / "a\nb").unlink(missing_ok=True)
            return super().write(data)

    big = workspace / "logs" / "r1.log"
    big.write_bytes(bytes(1 << 20))
    send({"workspace": str(workspace), "files": FILES}, written := Vanishing())
    written.seek(0)
    assert collect(tmp_path / "here", FILES, written)[1:] == (["logs/desk.log", "files/desk"], "")
    assert len(contents(tmp_path / "here" / "files" / "desk")) == 3


def test_a_file_that_cannot_be_read_is_named_and_the_others_arrive(
    tmp_path, workspace, monkeypatch, capsys
):
    def refusing(path, *how):
        if str(path).endswith("r1.log"):
            raise PermissionError(13, "Permission denied")
        return open(path, *how)

    monkeypatch.setattr("hearth.record.send.open", refusing, raising=False)
    assert collect(tmp_path / "here", FILES, archive_of(workspace))[1:] == (["files/desk"], "")
    assert capsys.readouterr().err == f"{NOT_SENT}logs/desk.log: Permission denied\n"


@pytest.mark.parametrize("left", [0, 100, 30_000])
def test_a_connection_that_breaks_replaces_nothing_by_a_part_of_it(tmp_path, workspace, left):
    earlier = tmp_path / "here" / "files" / "desk" / "earlier"
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    torn = BytesIO(archive_of(workspace).read()[:left])
    _, collected, why = collect(tmp_path / "here", FILES, torn)
    assert collected == (["logs/desk.log"] if left > 1000 else [])
    assert why
    assert earlier.exists()
    assert not list((tmp_path / "here").glob(".coming-*"))


def test_a_folder_here_that_cannot_be_written_is_said_and_is_no_fault_of_the_node(
    tmp_path, workspace
):
    (tmp_path / "here").write_text("in the way")
    request = {"workspace": str(workspace), "files": FILES}
    program = NodeProgram(login(tmp_path), sys.executable, PROGRAM, request)
    _, collected, why = collect(tmp_path / "here", FILES, program)
    program.close()
    assert (collected, program.begun) == ([], True)
    assert_names(why, tmp_path / "here")
