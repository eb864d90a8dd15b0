"""The first question to a node: is it away now, and can its command be run at all?"""

from __future__ import annotations

import os
import sys

import pytest
from support.facts import assert_names
from support.nvml import FOLDER, StandInCards

from hearth.base.clock import local_time
from hearth.lend import choice, first
from hearth.lend.choice import LendChoice
from hearth.lend.first import away_now


def test_a_node_without_terms_lends(tmp_path):
    assert away_now({}, tmp_path) == ("", [])
    assert away_now({"when": "", "hours": "", "after": 5.0, "command": ""}, tmp_path) == ("", [])


def test_a_command_that_says_no_is_the_reason(tmp_path):
    assert away_now({"command": "echo the film is on; exit 1"}, tmp_path) == ("the film is on", [])
    assert away_now({"command": "true"}, tmp_path) == ("", [])


def test_a_person_who_said_off_is_the_reason_also_without_terms(tmp_path):
    choice.write(tmp_path, LendChoice(choice.OFF, local_time()))
    why, findings = away_now({"when": "", "hours": "", "after": 5.0, "command": ""}, tmp_path)
    assert_names(why, "switched off by hand")
    assert findings == []


@pytest.mark.parametrize("command", ["no-such-program --now", "/no/such/program"])
def test_a_command_whose_program_is_missing_is_a_finding(tmp_path, command):
    why, (finding,) = away_now({"command": command}, tmp_path)
    assert why == ""
    assert_names(finding, "lend_command", command, "not found", "leave it out")


def test_terms_that_cannot_be_are_findings(tmp_path):
    assert len(away_now({"when": "idel", "hours": "7"}, tmp_path)[1]) == 2


def test_windows_does_not_say_when_it_is_idle(tmp_path, monkeypatch):
    monkeypatch.setattr("platform.release", lambda: "6.6.87.2-microsoft-standard-WSL2")
    why, (finding,) = away_now({"when": "idle"}, tmp_path)
    assert why == ""
    assert_names(finding, "lend_when", "WSL", "lend_hours", "lend_command")
    assert away_now({"command": "true"}, tmp_path) == ("", [])


def test_a_game_on_a_card_is_the_reason_and_a_peak_is_looked_at_twice(tmp_path, monkeypatch):
    cards = StandInCards(tmp_path / "nvml.json")
    monkeypatch.setenv("HEARTH_NVML_STANDIN", str(cards.file))
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(first, "AGAIN", 0.0)
    game = os.getppid()  # a process of this system that is not below this one
    assert away_now({"when": "idle"}, tmp_path) == ("", [])
    cards.add_process(game, "game", graphics=True, sm_percent=50, memory_mib=200)
    assert away_now({"when": "idle"}, tmp_path)[0] == f"game (process {game}) draws on the GPU"
    cards.add_process(game, "game", graphics=True, sm_percent=5, memory_mib=200)
    assert away_now({"when": "idle"}, tmp_path) == ("", [])
    sys.modules.pop("pynvml", None)
