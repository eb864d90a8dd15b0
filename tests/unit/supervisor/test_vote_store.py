"""A node's votes on its disk: nothing counts that is not there."""

from __future__ import annotations

import asyncio
import errno
import os
from types import SimpleNamespace

import pytest

from hearth.supervisor import vote_store
from hearth.supervisor.decisions.voting import PROPOSAL_LIFETIME, Config, Votes
from hearth.supervisor.vote_store import VotesError, VoteStore

VOTES = Votes(Config(3, ("tower", "laptop")), (Config(5, ("laptop",)),), counts=True)


@pytest.fixture
def clock(monkeypatch):
    """A clock of the vote store that the test sets."""
    time = SimpleNamespace(now=100.0)
    monkeypatch.setattr(vote_store, "boot_clock", lambda: time.now)
    return time


@pytest.fixture
def store(tmp_path, clock):
    return store_of(tmp_path)


def store_of(folder, **given: str) -> VoteStore:
    log: list[str] = []
    whose = {"run": "first", "node": "laptop", "token": "secret"} | given
    store = VoteStore(SimpleNamespace(results=folder, **whose), log.append)
    store.log = log
    return store


def save(store: VoteStore, votes: Votes) -> str:
    return asyncio.run(store.save(votes))


def test_saved_votes_are_read_back(store):
    for votes in (Votes(), VOTES):
        assert save(store, votes) == ""
        assert store.read() == votes
    assert store.read(known=VOTES.newest) == VOTES
    assert [path.name for path in store.path.parent.iterdir()] == ["votes.json"]
    assert store.log == []


def test_an_empty_disk_has_no_votes(store):
    assert store.read() == Votes()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"[]",
        b"{}",
        b'{"run": "first", "node": "laptop"}',
        b'{"run": "first", "node": "laptop", "launch": "new", "committed": 1, "attempts": [], '
        b'"counts": true}',
        b"[" * 100_000,
        b"\x00" * 4096,
    ],
)
def test_a_damaged_file_is_like_an_empty_disk_and_named(store, content):
    store.path.write_bytes(content)
    assert store.read() == Votes()
    assert f"{store.path} is ignored: it is damaged" in store.log[0]


def test_every_cut_of_the_file_is_like_an_empty_disk(store):
    save(store, VOTES)
    whole = store.path.read_bytes().rstrip()
    for length in range(len(whole)):
        store.path.write_bytes(whole[:length])
        assert store.read() == Votes()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"node": "tower"}, "it belongs to tower in run 'first'"),
        ({"run": "second"}, "it belongs to laptop in run 'second'"),
        ({"token": "of an earlier launch"}, ""),
    ],
)
def test_a_file_of_another_node_run_or_launch_is_like_an_empty_disk(store, other, said):
    save(store_of(store.path.parent, **other), VOTES)
    assert store.read() == Votes()
    assert len(store.log) == bool(said)
    assert said in "".join(store.log)


def test_a_file_that_is_older_than_the_last_training_here_has_no_vote(store):
    save(store, VOTES)
    assert store.read(known=VOTES.newest + 1) == Votes()
    assert f"older than generation {VOTES.newest + 1}" in store.log[0]


def test_a_file_that_cannot_be_read_is_an_error_with_its_cure(store):
    store.path.mkdir()
    with pytest.raises(VotesError, match=r"cannot be read .*: make the file readable"):
        store.read()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_votes_that_did_not_reach_the_disk_are_refused_and_the_old_ones_stay(
    store, monkeypatch, number
):
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    save(store, VOTES)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        assert "vote of laptop cannot be saved" in (why := save(store, Votes()))
        assert "free some space" in why
    assert not store.stuck
    assert store.read() == VOTES
    assert [path.name for path in store.path.parent.iterdir()] == ["votes.json"]


def test_file_and_folder_are_synced_before_and_after_the_new_name(store, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    save(store, VOTES)
    content, folder = synced
    assert os.path.dirname(content) == folder == str(store.path.parent)
    assert os.path.basename(content).startswith(".votes.json")


def test_a_vote_that_is_long_on_its_way_to_the_disk_is_stuck_there(store, clock, monkeypatch):
    seen = []

    def write(*_: object, synced: bool) -> None:
        for seconds in (PROPOSAL_LIFETIME, 0.1):
            clock.now += seconds
            seen.append(store.stuck)

    monkeypatch.setattr(vote_store, "write_whole", write)
    assert save(store, Votes()) == ""
    assert seen == [False, True]
    assert not store.stuck
