"""Provisioning's changes can be undone, to the byte."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from ansible.module_utils.hearth_node.changes import record
from ansible.module_utils.hearth_node.changes.record import (
    Journal,
    PathState,
    RecordError,
    Undone,
    run_all,
    with_block,
)
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names
from support.plugins import load
from support.programs import tree
from support.waiting import HANG


def undo(record: Journal) -> list[str]:
    return [record.restore(each.path).state for each in reversed(record.entries())]


def test_a_file_a_link_a_new_file_and_its_folders_go_back_to_what_they_were(tmp_path, open_record):
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "hosts").write_text("127.0.1.1 tower\n")
    (etc / "hosts").chmod(0o640)
    (etc / "localtime").symlink_to("../zone")
    before = tree(etc)

    assert open_record().write(str(etc / "hosts"), b"ours\n", mode=0o600).changed
    assert open_record().write(str(etc / "hosts"), b"ours again\n").changed
    assert open_record().link(str(etc / "localtime"), "/dev/null").changed
    assert open_record().write(str(etc / "logind.conf.d/a/50.conf"), b"x").changed
    assert open_record().link(str(etc / "sleep.target"), "/dev/null").changed
    assert (etc / "hosts").read_bytes() == b"ours again\n"
    assert stat.S_IMODE((etc / "hosts").stat().st_mode) == 0o600

    record = open_record()
    assert "left" not in undo(record)
    record.forget()
    assert tree(etc) == before
    assert not (tmp_path / "record").exists()


def test_a_second_time_changes_nothing_and_check_mode_neither(tmp_path, open_record):
    path = tmp_path / "new" / "file"
    change = open_record(check=True).write(str(path), b"x\n")
    assert change.changed
    assert change.diff["after"] == "x\n"
    assert not path.parent.exists()
    assert not open_record().entries()
    open_record().write(str(path), b"x\n")
    assert not open_record().write(str(path), b"x\n").changed
    path.chmod(0o600)
    assert open_record(check=True).write(str(path), b"x\n", mode=0o644).changed


def test_what_somebody_has_changed_since_is_left_and_the_original_kept(tmp_path, open_record):
    path = tmp_path / "file"
    path.write_text("original\n")
    open_record().write(str(path), b"hearth\n")
    path.write_text("the owner's\n")
    undone = open_record().restore(str(path))
    assert undone.state == "left"
    assert path.read_text() == "the owner's\n"
    assert (tmp_path / f"originals{path}").read_text() == "original\n"
    assert str(tmp_path / "originals") in undone.why


def test_of_a_file_with_a_block_only_the_block_goes_if_others_have_changed_it(
    tmp_path, open_record
):
    path = tmp_path / "authorized_keys"
    for marker, text in (("controller", "one"), ("rank 0", "two"), ("controller", "three")):
        open_record().block(str(path), marker, f"key {text}", mode=0o600)
        path.write_text(f"{path.read_text()}the owner's key beside {text}\n")
    assert undo(open_record()) == ["restored"]
    kept = [f"the owner's key beside {text}" for text in ("one", "two", "three")]
    assert path.read_text().splitlines() == kept


def test_a_block_alone_in_a_new_file_takes_the_file_along(tmp_path, open_record):
    path = tmp_path / "file"
    open_record().block(str(path), "names", "one")
    open_record().block(str(path), "names", "two")
    assert undo(open_record()) == ["removed"]
    assert not path.exists()


def test_what_another_program_changes_is_remembered_first(tmp_path, open_record):
    path = tmp_path / "user.rules"
    path.write_text("rules\n")
    open_record().before(str(path), then=[["ufw", "reload"]])
    path.write_text("rules and more\n")
    open_record().before(str(path))  # a second run
    assert open_record().entries()[0].then == [["ufw", "reload"]]
    assert open_record().restore(str(path)).state == "restored"
    assert path.read_text() == "rules\n"


@contextmanager
def ends_at(place: Path, error: BaseException, done: bool) -> Iterator[None]:
    """Have the change of a file end with an error, once it is `done` or before."""
    put = record._put

    def end(path: str, content: bytes, wanted: PathState) -> None:
        if done or path != str(place):
            put(path, content, wanted)
        if path == str(place):
            raise error

    with patch.object(record, "_put", end), pytest.raises(type(error)):
        yield


def test_what_somebody_adds_after_a_change_that_was_cut_off_is_not_thrown_away(
    tmp_path, open_record
):
    keys = tmp_path / "authorized_keys"
    keys.write_text("first\n")
    with ends_at(keys, SystemExit("the connection broke off"), done=True):
        open_record().block(str(keys), "controller", "ours")
    open_record().block(str(keys), "controller", "ours")  # the play is called again
    keys.write_text(keys.read_text() + "mine\n")
    assert undo(open_record()) == ["restored"]
    assert keys.read_text() == "first\nmine\n"


def test_a_change_that_the_disk_refuses_leaves_the_record_of_the_one_before(tmp_path, open_record):
    place = tmp_path / "hosts"
    open_record().write(str(place), b"ours\n")
    with ends_at(place, OSError("no space left"), done=False):
        open_record().write(str(place), b"ours again\n")
    assert undo(open_record()) == ["removed"]


def test_a_folder_that_others_use_stays(tmp_path, open_record):
    path = tmp_path / "drop.d" / "hearth.conf"
    open_record().write(str(path), b"x")
    (path.parent / "own.conf").write_text("mine")
    assert undo(open_record()) == ["removed", "left"]
    assert (path.parent / "own.conf").exists()


def test_a_note_is_kept_once_and_the_record_is_private(tmp_path, open_record):
    for _ in range(2):
        open_record().note("nvidia-open was installed")
    assert len(open_record().notes()) == 1
    (tmp_path / "secret").write_text("psk")
    open_record().write(str(tmp_path / "secret"), b"")
    for path in (tmp_path / "record").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


def test_what_would_lose_an_original_is_refused(tmp_path, open_record):
    with pytest.raises(RecordError, match="names end"):
        with_block("# hearth: names begin\nlost\n", "names", "new")
    open_record().write(str(tmp_path / "file"), b"x")
    with pytest.raises(RecordError, match="1 changes"):
        open_record().forget()
    (tmp_path / "record" / "record.json").write_text("{")
    with pytest.raises(RecordError, match=r"record\.json"):
        open_record()


def test_commands_run_once_each_and_a_failure_is_told(tmp_path):
    once = ["sh", "-c", f"echo x >>{tmp_path}/ran"]
    false, missing = run_all([once, ["false"], once, ["no-such-command-here"]])
    assert (tmp_path / "ran").read_text() == "x\n"
    assert_names(false, "`false`", "status 1")
    assert_names(missing, "`no-such-command-here`")


LINES = st.lists(st.text(st.characters(exclude_characters="\r\n#", codec="utf-8")), max_size=5)


@given(LINES, LINES.filter(lambda lines: "".join(lines).strip()), LINES)
def test_a_block_is_idempotent_and_goes_without_a_trace(around, block, other):
    text = "".join(f"{line}\n" for line in around)
    inside = "\n".join(block)
    with_it = with_block(text, "names", inside)
    assert with_block(with_it, "names", inside) == with_it
    assert with_block(with_it, "names", None) == text
    replaced = with_block(with_it, "names", "\n".join([*other, "x"]))
    assert with_block(replaced, "names", None) == text


def test_our_part_of_a_shared_file_is_taken_out_as_the_caller_says(tmp_path, open_record):
    path, plain = tmp_path / "hosts", lambda text: text.replace("ours\n", "")
    path.write_text("theirs")
    open_record().write(str(path), b"theirs\nours\n")
    assert open_record().restore(str(path), plain=plain).why == ""
    assert path.read_text() == "theirs"  # to the byte, without the newline that we had to add

    open_record().write(str(path), b"theirs\nours\n")
    path.write_text("theirs\nours\nadded\n")
    foretold = open_record(check=True).restore(str(path), plain=plain)
    assert path.read_text() == "theirs\nours\nadded\n"
    assert open_record().restore(str(path), plain=plain) == foretold
    assert path.read_text() == "theirs\nadded\n"


def test_two_that_change_a_machine_at_once_lose_nothing_of_each_other(tmp_path, open_record):
    shared = tmp_path / "hosts"
    shared.write_text("theirs\n")
    before = tree(tmp_path)

    def change(name: str) -> None:
        record = open_record()
        everyone.wait()  # both have read the record before either changes anything
        for number in range(10):
            record.write(str(tmp_path / f"{name}-{number}"), b"ours\n")
            record.block(str(shared), f"{name} {number}", "a line")
            record.note(f"{name} installed {number}")

    names = ("provision", "reset")
    everyone = threading.Barrier(len(names), timeout=HANG)
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(change, names))
    record = open_record()
    assert len(record.notes()) == 20
    assert len(record.entries()) == 21
    assert shared.read_text().count("a line") == 20
    assert "left" not in undo(record)
    record.forget()
    assert tree(tmp_path) == before


reset = load("modules", "hearth_reset")


def test_what_is_back_counts_also_where_another_path_cannot_be_put_back(
    tmp_path, open_record, monkeypatch
):
    record = open_record()
    told = tmp_path / "told"
    record.write(str(tmp_path / "hosts"), b"ours")
    record.write(str(tmp_path / "logind"), b"ours", then=[["/bin/touch", str(told)]])
    restore = record.restore

    def immutable(path, plain):
        if path.endswith("hosts"):
            raise RecordError("hosts may not be changed")
        return restore(path, plain)

    monkeypatch.setattr(record, "restore", immutable)
    with pytest.raises(RecordError, match="hosts"):
        reset.undo(record, [])
    assert not (tmp_path / "logind").exists()
    assert told.exists()


def test_what_one_that_was_cut_off_has_put_back_counts_after_the_next(tmp_path, open_record):
    told, logind = tmp_path / "told", str(tmp_path / "logind")
    open_record().write(logind, b"ours", then=[["/bin/touch", str(told)]])
    open_record().restore(logind)  # and no more: its machine lost the power
    assert not told.exists()
    assert reset.undo(open_record(check=True), []) == ([], [])
    assert not told.exists()
    assert reset.undo(open_record(), []) == ([], [])
    assert told.exists()
    told.unlink()
    assert reset.undo(open_record(), []) == ([], [])
    assert not told.exists()


def test_what_is_to_be_undone_is_said_first_and_what_stays_last():
    lines = reset.predicted(
        [Undone("/etc/a", "removed"), Undone("/etc/b", "left", "it was changed since")],
        [["ufw", "delete", "allow", "from", "10.0.0.2"]],
        ["package x"],
    )
    assert reset.announcement(lines, ["/home/me/ai-cluster"]).splitlines() == [
        "to be undone:",
        "remove /etc/a",
        "leave /etc/b (it was changed since)",
        "remove the rule `ufw allow from 10.0.0.2`",
        "leave package x",
        "keep /home/me/ai-cluster",
    ]
    assert reset.announcement([], []) == "nothing to undo"
