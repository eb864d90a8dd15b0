"""The files of a run on their way from a node: any name, any fault."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import sys
import tarfile
from contextlib import contextmanager
from importlib import resources
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.facts import assert_names
from support.programs import NOISE, login

from hearth.record.send import ANNOUNCEMENT, NOT_SENT, send
from hearth_controller.base.node_program import NodeProgram
from hearth_controller.runs import collect as collecting
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


NAMES = ("logs/desk.log", "model")
GIB = 1 << 30


class Endless:
    """A stream that never ends; `taken` is the number of bytes that were read."""

    def __init__(self, begins: bytes, then: bytes):
        self.taken = 0
        self._pieces = itertools.chain([begins], itertools.repeat(then))
        self._held = b""

    def read(self, size):
        while len(self._held) < size:
            self._held += next(self._pieces)
        data, self._held = self._held[:size], self._held[size:]
        self.taken += len(data)
        return data


def header(name, size=0, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def member(name, content, kind=tarfile.REGTYPE):
    padding = bytes(-len(content) % tarfile.BLOCKSIZE)
    return header(name, len(content), kind) + content + padding


def announced(files, size):
    return member(ANNOUNCEMENT, json.dumps({"files": files, "bytes": size}).encode())


def old_gnu_sparse(name, size):
    """Return the member of a file of `size` bytes without its content."""
    block = bytearray(header(name, 0, tarfile.GNUTYPE_SPARSE))
    block[386:410] = b"%011o\0" % size + b"%011o\0" % 0
    block[483:495] = b"%011o\0" % size
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def pax(name, content, **headers):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.pax_headers = headers
    padding = bytes(-len(content) % tarfile.BLOCKSIZE)
    return info.tobuf(tarfile.PAX_FORMAT) + content + padding


SPARSE = {
    "old GNU": old_gnu_sparse(NAMES[0], 3 * GIB),
    "pax 0.1": pax(NAMES[0], b"", **{"GNU.sparse.map": f"{3 * GIB},0", "GNU.sparse.size": "9"}),
    "pax 1.0": pax(
        NAMES[0],
        b"1\n3221225472\n0\n".ljust(512, b"\0"),
        **{"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": f"{3 * GIB}"},
    ),
}


@contextmanager
def free(monkeypatch, count):
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, count))
        yield


def on_disk(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", SPARSE)
def test_a_sparse_file_is_refused_and_what_came_before_it_stays(tmp_path, kind):
    whole = announced(2, 9) + member("model/x", b"weights\n") + SPARSE[kind] + bytes(10240)
    _, collected, why = collect(tmp_path, ["model", NAMES[0]], io.BytesIO(whole))
    assert collected in ([], ["model"])
    assert why
    assert on_disk(tmp_path) < 100


@pytest.mark.parametrize(
    "stream",
    [
        Endless(announced(1, 9) + header(NAMES[0], 2 * GIB), b"x" * 10240),
        Endless(header(NAMES[0], 2 * GIB), b"x" * 10240),
        Endless(header("something/else", 2 * GIB), b"x" * 10240),
        Endless(b"", header(NAMES[0])),
        Endless(announced(3, 9), header(NAMES[0])),
        Endless(b"", header("a/pipe", 0, tarfile.FIFOTYPE)),
        Endless(header("x", GIB, tarfile.GNUTYPE_LONGNAME), b"x" * 10240),
        Endless(header("x", GIB, tarfile.XHDTYPE), b"x" * 10240),
        Endless(b"", member("x", b"name\0", tarfile.GNUTYPE_LONGNAME)),
        Endless(header("a/pipe", GIB, tarfile.FIFOTYPE), b"x" * 10240),
        Endless(header(ANNOUNCEMENT, 2 * GIB), b" " * 10240),
        Endless(b"", b"no archive"),
    ],
)
def test_an_endless_stream_ends_before_the_disk_is_full(tmp_path, monkeypatch, stream):
    with free(monkeypatch, 100 << 20):
        _, _, why = collect(tmp_path, NAMES, stream)
    assert why
    assert stream.taken <= 110 << 20
    assert on_disk(tmp_path) == 0


def test_more_than_was_announced_is_not_taken(tmp_path):
    more = announced(1, 4) + member(NAMES[0], b"four") + member("model/x", bytes(1 << 20))
    _, collected, why = collect(tmp_path, NAMES, io.BytesIO(more + bytes(10240)))
    assert why
    assert not (tmp_path / "model").exists()
    assert collected in ([], [NAMES[0]])


def test_an_archive_for_which_there_is_no_room_is_refused_before_any_of_it(tmp_path, monkeypatch):
    with free(monkeypatch, 10 << 20):
        stream = Endless(announced(1, GIB) + header("model/x", GIB), bytes(10240))
        changed, collected, why = collect(tmp_path, NAMES, stream)
    assert not changed and not collected
    assert "1.1 GB" in why
    assert stream.taken < 1 << 16


def test_what_grows_while_it_is_sent_stays_within_what_was_announced(tmp_path):
    log = tmp_path / "node" / "run.log"
    log.parent.mkdir()
    log.write_bytes(b"a line\n" * 100)

    class Growing(io.BytesIO):
        def write(self, data):
            with log.open("ab") as file:
                file.write(b"more" * 10_000)
            return super().write(data)

    sent = Growing()
    send({"workspace": str(tmp_path / "node"), "files": {NAMES[0]: "run.log", "model": ""}}, sent)
    sent.seek(0)
    assert collect(tmp_path / "here", NAMES, sent)[2] == ""
    assert (tmp_path / "here" / NAMES[0]).read_bytes().startswith(b"a line\n" * 100)


def good():
    info = io.BytesIO()
    with tarfile.open(fileobj=info, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for name in (NAMES[0], "model/a", "model/" + "b" * 200):
            piece = tarfile.TarInfo(name)
            piece.size = 3
            archive.addfile(piece, io.BytesIO(b"abc"))
    return info.getvalue()


GOOD = announced(3, 9) + good()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6 * 512), st.binary(min_size=1, max_size=40)), max_size=6),
    st.integers(0, len(GOOD)),
)
def test_whatever_is_broken_in_an_archive_the_reason_is_said(tmp_path_factory, changes, length):
    broken = bytearray(GOOD)
    for place, new in changes:
        broken[place : place + len(new)] = new
    into = tmp_path_factory.mktemp("into")
    _, collected, why = collect(into, NAMES, io.BytesIO(bytes(broken[:length])))
    assert isinstance(why, str)
    assert set(collected) <= set(NAMES)
    assert on_disk(into) <= 200
    assert not list(into.glob(f"{collecting._COMING}*"))
    shutil.rmtree(into)


def test_an_archive_that_any_program_wrote_is_read_without_an_announcement(tmp_path):
    assert collect(tmp_path, NAMES, io.BytesIO(good()))[1:] == ([*NAMES], "")
