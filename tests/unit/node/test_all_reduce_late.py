"""The sum over all nodes that does not end in time: how far each node came, and why."""

from __future__ import annotations

import json
import sys

import pytest
from support.facts import assert_names
from support.programs import run
from support.repository import ROOT

from hearth.node.all_reduce import ANSWER, why_late
from hearth_controller.doctor.verify import sum_of


@pytest.mark.parametrize(
    ("record", "load", "facts"),
    [
        ({"state": "waiting", "missing": ["laptop"]}, 14.0, ["for laptop", "14", "2 processors"]),
        ({"state": "running", "missing": []}, 14.0, ["were started", "14", "2 processors"]),
        ({"state": "running", "missing": []}, 0.4, ["were started", "firewall", "slow link"]),
        ({"state": "unknown"}, 0.4, ["not started", "firewall"]),
    ],
)
def test_a_node_says_how_far_it_came_and_whether_it_is_busy(record, load, facts):
    said = why_late("tower", 120, record, load, 2)
    assert_names(said, "tower", "within 120 s", *facts)
    assert ("firewall" in said) is (load < 1)


def test_what_each_node_says_is_shown_where_no_single_one_is_at_fault():
    answers = [
        {"facts": {"culprit": None}, "findings": [f"{node}: no end"]} for node in ("desk", "tower")
    ]
    total = sum_of(answers)
    assert total.culprit is None
    assert_names(total.failure, "desk: no end", "tower: no end")


def test_the_script_of_the_sum_explains_itself_and_writes_nothing(tmp_path):
    script = ROOT / "training" / "check_all_reduce.py"
    done = run(sys.executable, script, "--help", cwd=tmp_path)
    assert "usage" in done.stdout
    assert [*tmp_path.iterdir()] == []


def test_the_script_of_the_sum_takes_the_words_of_a_supervisor(tmp_path):
    script = ROOT / "training" / "check_all_reduce.py"
    run(sys.executable, script, "--run-file", tmp_path / "run.yml", cwd=tmp_path)
    assert json.loads((tmp_path / ANSWER).read_text())["wrong"] == []
