"""`hearth-lend`: a person at the node keeps the machine, lends it, and sees who has it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import datetime, timedelta

import pytest
from ansible.module_utils.hearth_node.workspace.place import write_command
from support.facts import assert_names
from support.repository import ROOT
from support.waiting import until
from support.workspace import under_way

from hearth.base.clock import local_time
from hearth.lend.choice import AUTO, OFF, ON, choice_file, read
from hearth.supervisor import lend as command
from hearth.supervisor.record import RunRecord
from hearth.supervisor.spec import record_file

TERMS = {"when": "idle", "hours": "", "after": 5, "command": ""}


@pytest.fixture
def lend(tmp_path, capsys):
    """Return a function that calls the command; it returns its output."""

    def act(*words: str, status: int = 0) -> str:
        assert command.main([*words, "--workspace", str(tmp_path)]) == status
        said = capsys.readouterr()
        return said.out if status == 0 else said.err

    return act


@pytest.fixture
def run(tmp_path):
    """Return a function that writes the record of the run `night`, which has the node."""

    def record(away: str = "", state: str = "running") -> None:
        path = record_file(tmp_path, "night")
        path.parent.mkdir(parents=True, exist_ok=True)
        now = RunRecord("night", "tower", 0, 0, pid=1, state=state)
        now.write(path)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"away": away}))

    config = tmp_path / "config" / "night.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"lend": TERMS}))
    record()
    with under_way(tmp_path, "night"):
        yield record


def test_the_script_takes_no_code_from_the_folder_that_one_is_in(tmp_path):
    script = tmp_path / "hearth-lend"
    assert write_command(str(tmp_path), sys.executable, check=False)
    (tmp_path / "scripts").symlink_to(ROOT / "training")
    (shared := tmp_path / "tmp").mkdir()
    (shared / "json.py").write_text("raise SystemExit('taken')\n")
    said = subprocess.run([script], cwd=shared, capture_output=True, text=True)
    assert_names(said.stdout, "auto", "No run is under way")
    assert said.returncode == 0


def test_off_on_and_auto_are_kept(lend, tmp_path):
    assert_names(lend("off"), "off", "this machine is yours", "No run is under way")
    assert read(tmp_path).word == OFF
    assert_names(lend("on"), "on", "whatever the inventory says")
    assert read(tmp_path).word == ON
    assert_names(lend("auto"), "auto", "as the inventory says")
    assert not choice_file(tmp_path).exists()


def test_without_a_word_it_shows_and_changes_nothing(lend, tmp_path):
    assert lend() == lend("status")
    assert list(tmp_path.iterdir()) == []


def test_a_word_ends_after_a_span_or_at_a_time(lend, tmp_path):
    now = local_time()
    lend("off", "--for", "2h")
    ends = read(tmp_path).until
    assert timedelta(minutes=119) <= ends - now < timedelta(minutes=125)
    lend("on", "--until", "07:00")
    ends = read(tmp_path).until.astimezone(now.tzinfo)
    assert (ends.hour, ends.minute) == (7, 0)
    assert read(tmp_path).at(ends) == AUTO


def test_the_same_word_again_keeps_its_time(lend, tmp_path):
    lend("off", "--until", "07:00")
    before = choice_file(tmp_path).stat()
    lend("off", "--until", "07:00")
    assert choice_file(tmp_path).stat() == before


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (("off", "--for", "soon"), ["--for", "'soon'", "2h"]),
        (("off", "--until", "7 o'clock"), ["--until", "7 o'clock", "23:00"]),
        (("auto", "--for", "2h"), ["auto has no end"]),
        (("status", "--for", "2h"), ["off or on"]),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(lend, tmp_path, words, facts):
    assert_names(lend(*words, status=2), *facts)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    assert command.main(["off", "--workspace", str(tmp_path / "none")]) == 2
    assert_names(capsys.readouterr().err, str(tmp_path / "none"), "no such folder")


def test_a_broken_choice_is_shown_and_auto_writes_it_anew(lend, tmp_path):
    choice_file(tmp_path).write_text("{")
    assert_names(lend(), "off", str(choice_file(tmp_path)), "hearth-lend auto")
    lend("auto")
    assert_names(lend(), "as the inventory says")


def test_off_waits_until_the_run_has_left(lend, run, tmp_path):
    def leaves() -> None:
        until(lambda: read(tmp_path).word == OFF)
        run("switched off by hand since 20:15")

    supervisor = threading.Thread(target=leaves)
    supervisor.start()
    said = lend("off")
    supervisor.join()
    assert_names(said, "night leaves after its step", "night is without it", "switched off by hand")


def test_on_says_that_the_machine_returns_and_not_why_it_was_away(lend, run):
    run("its hours are 21:03-07:00; lends again at 21:03")
    assert_names(lend(), "lends again at 21:03")
    for said in (lend("on"), lend()):
        assert_names(said, "night is without it", "returns", "loaded the model")
        assert "21:03" not in said


def test_a_run_that_does_not_leave_in_time_is_said(lend, run, monkeypatch):
    monkeypatch.setattr(command, "PATIENCE", 0.5)
    assert_names(lend("off"), "night has not left yet")
    assert_names(lend("off", "--no-wait"), "night has not left yet")


def test_status_shows_who_has_the_machine_and_since_when(lend, run):
    now = datetime.now().astimezone()
    assert_names(lend(), "night has it since")
    assert f"{now:%H:}" in lend() or f"{now - timedelta(hours=1):%H:}" in lend()
    run("game (process 70) draws on the GPU")
    assert_names(lend(), "night is without it since", "game (process 70) draws on the GPU")
    run(state="finished")
    assert_names(lend(), "No run is under way")


def test_a_run_without_lending_keeps_the_machine_and_says_so(lend, run, tmp_path):
    (tmp_path / "config" / "night.json").write_text("{}")
    assert_names(lend("off"), "night has it", "without lending", "hearth stop")


def test_a_program_gets_json_and_waits_for_nothing(lend, run, tmp_path):
    answer = json.loads(lend("off", "--json", "--until", "07:00"))
    assert answer["findings"] == []
    facts = answer["facts"]
    assert facts["changed"]
    assert (facts["word"], facts["until"][-5:]) == (OFF, "07:00")
    assert (facts["run"], facts["away"], facts["lends"]) == ("night", "", True)
    assert not json.loads(lend("off", "--json", "--until", "07:00"))["facts"]["changed"]
    assert command.main(["off", "--json", "--for", "x", "--workspace", str(tmp_path)]) == 2


def test_a_dry_run_writes_nothing(lend, tmp_path):
    assert json.loads(lend("off", "--json", "--dry-run"))["facts"]["changed"]
    assert list(tmp_path.iterdir()) == []
