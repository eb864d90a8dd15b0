"""A node's votes on its disk."""

from __future__ import annotations

import errno
import json
import os

import pytest

from hearth.supervisor.decisions.voting import Config, Votes
from hearth.supervisor.vote_store import VotesError, VotesFile

VOTES = Votes(Config(3, ("tower", "laptop")), (Config(5, ("laptop",)),), counts=True)


@pytest.fixture
def file(tmp_path):
    return VotesFile(tmp_path, "first", "laptop", "new")


def test_saved_votes_are_read_back(file):
    file.save(Votes())
    file.save(VOTES)
    assert file.read() == (VOTES, "")
    assert [path.name for path in file.folder.iterdir()] == ["votes.json"]


def test_an_empty_disk_has_no_votes(file):
    assert file.read() == (Votes(), "")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[]",
        b"3",
        b"{}",
        b'{"run": "first", "node": "laptop"}',
        b'{"run": "first", "node": "laptop", "launch": "new", "committed": 1, "attempts": [], '
        b'"counts": true}',
        b"[" * 100_000,
        b"\x00" * 4096,
    ],
)
def test_a_damaged_file_is_like_an_empty_disk_and_named(file, content):
    file.path.write_bytes(content)
    votes, remark = file.read()
    assert votes == Votes()
    assert f"{file.path} is ignored: it is damaged" in remark


def test_a_file_that_is_older_than_the_last_training_here_has_no_vote(file):
    file.save(VOTES)
    assert file.read(known=VOTES.newest) == (VOTES, "")
    votes, remark = file.read(known=VOTES.newest + 1)
    assert votes == Votes()
    assert f"older than generation {VOTES.newest + 1}" in remark


def test_every_cut_of_the_file_is_like_an_empty_disk(file):
    file.save(VOTES)
    whole = file.path.read_bytes().rstrip()
    for length in range(len(whole)):
        file.path.write_bytes(whole[:length])
        assert file.read()[0] == Votes()


@pytest.mark.parametrize(("run", "node"), [("first", "tower"), ("second", "laptop")])
def test_a_file_of_another_node_or_run_is_like_an_empty_disk_and_named(file, run, node):
    VotesFile(file.folder, run, node, "new").save(VOTES)
    votes, remark = file.read()
    assert votes == Votes()
    assert f"it belongs to {node} in run '{run}'" in remark


def test_a_file_of_another_launch_is_like_an_empty_disk(file):
    VotesFile(file.folder, "first", "laptop", "old").save(VOTES)
    assert file.read() == (Votes(), "")


def test_a_file_that_cannot_be_read_is_an_error_with_its_cure(file):
    file.path.mkdir()
    with pytest.raises(VotesError, match=r"cannot be read .*: make the file readable"):
        file.read()


def fails_with(number: int):
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_votes_that_did_not_reach_the_disk_are_an_error_and_the_old_ones_stay(
    file, monkeypatch, number
):
    file.save(VOTES)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails_with(number))
        with pytest.raises(VotesError, match=r"vote of laptop cannot be saved .*free some space"):
            file.save(Votes())
    assert file.read() == (VOTES, "")
    assert [path.name for path in file.folder.iterdir()] == ["votes.json"]


def test_file_and_folder_are_synced_before_and_after_the_new_name(file, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    file.save(VOTES)
    content, folder = synced
    assert os.path.dirname(content) == folder == str(file.folder)
    assert os.path.basename(content).startswith(".votes.json")
    assert json.loads(file.path.read_text())["node"] == "laptop"
