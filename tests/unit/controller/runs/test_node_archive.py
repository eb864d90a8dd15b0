"""Archives of a node that is broken or no friend: nothing of them fills this computer's disk."""

from __future__ import annotations

import io
import itertools
import json
import shutil
import tarfile
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearth.record.send import ANNOUNCEMENT, send
from hearth_controller.runs import collect as collecting
from hearth_controller.runs.collect import collect

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
