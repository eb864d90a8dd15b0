"""The end of a play: its exit status, its answer, and where its output goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.facts import assert_names
from support.repository import ROOT
from support.waiting import HANG

from hearth_controller.runs.status import status

_MAIN = "import sys; from hearth_controller.cli import main; sys.argv.pop(0); sys.exit(main())"
COMMAND = "\x1b]0;owned\x07\x1b[2J"
"""Sets the title of a terminal and clears it."""
STATUS = status([], {"desk": None}, {"desk": "no route"}, "2026-11-20T20:10:00+00:00")


def answer(verdict="good", text="", errors=(), facts=None, **more):
    facts = (facts or {}) | more
    return {"ended": verdict, "facts": facts, "text": text, "errors": list(errors)}


@pytest.mark.parametrize(
    ("verdict", "code"), [("good", 0), ("degraded", 1), ("refused", 2), ("broken", 3)]
)
@pytest.mark.parametrize("verb", ["stop", "runs"])
def test_the_exit_status_says_how_it_ended(hearth, playing, verb, verdict, code):
    playing(answer(verdict), status=2 * (code > 1))
    assert hearth(verb)[0] == code


@pytest.mark.parametrize(
    ("status", "code", "said"), [(1, 3, "no ansible.cfg"), (2, 3, "no ans"), (99, 130, "interrup")]
)
def test_a_play_without_an_answer_is_broken_or_was_interrupted(hearth, playing, status, code, said):
    playing(prints="no ansible.cfg", status=status)
    ended, printed, errors = hearth("status")
    assert (ended, printed) == (code, "")
    assert said in errors


def test_it_plays_in_the_checkout_from_any_folder(hearth, playing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    typed = playing(answer())
    assert hearth("stop", "evening")[0] == 0
    folder, *words = typed.read_text().splitlines()
    assert folder == str(ROOT)
    assert words == ["playbooks/stop.yml", "-e", "run=evening"]


def test_a_table_is_all_that_is_printed_and_holds_no_command_for_the_terminal(hearth, playing):
    playing(answer(text=f"  desk{COMMAND}  well"), prints="Status")
    assert hearth("status") == (0, "  desk  well\n", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_ends_is_no_error(tmp_path, unbuffered):
    """`hearth runs | head` closes the pipe while the table is made."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", _MAIN, "hearth", "train", "--help-all"],
        stdout=writing,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        text=True,
        timeout=HANG,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_answer_for_programs_is_all_of_the_output(hearth, playing):
    playing(answer("degraded", "a table", nodes={"desk": 1}), prints="Logs")
    code, printed, errors = hearth("logs", "--json")
    assert code == 1
    assert json.loads(printed) == {"verdict": "degraded", "nodes": {"desk": 1}}
    assert "Logs" in errors
    playing(answer("good", "a table", nodes={}), prints="Status")
    code, printed, errors = hearth("status", "--json")
    assert json.loads(printed) == {"verdict": "good", "nodes": {}}
    assert errors == ""


def test_an_error_reaches_people_and_programs(hearth, playing):
    failed = answer("broken", errors=[{"node": "desk", "message": "on fire"}])
    playing(failed, prints="desk: on fire", status=2)
    code, printed, errors = hearth("runs")
    assert (code, printed) == (3, "")
    assert "on fire" in errors
    code, printed, _ = hearth("runs", "--json")
    assert (code, json.loads(printed)["errors"][0]["message"]) == (3, "on fire")


def test_metrics_are_printed_or_replace_a_file_of_node_exporter(hearth, playing, tmp_path):
    playing(answer("broken", facts=STATUS))
    code, printed, _ = hearth("status", "--prometheus")
    assert code == 3  # no node answers
    assert "\nhearth_verdict 3\n" in printed
    file = tmp_path / "hearth.prom"
    file.write_text("old")
    assert hearth("status", "--prometheus", file) == (0, "", "")
    assert file.read_text() == printed


@pytest.mark.parametrize("file", ["hearth.txt", "nowhere/hearth.prom"])
def test_a_file_that_node_exporter_would_not_read_is_refused(hearth, playing, tmp_path, file):
    typed = playing(answer("broken", facts=STATUS))
    code, _, errors = hearth("status", "--prometheus", tmp_path / file)
    assert code == 2
    assert_names(errors, tmp_path / file, ".prom", "folder")
    assert not typed.exists()
