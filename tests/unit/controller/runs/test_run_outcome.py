"""The outcome of a run over its nodes, the files that come from each, and its record here."""

from __future__ import annotations

import json
import shutil

import pytest
from support.facts import assert_names
from support.house import ROOT

from hearth_controller.report.closing import close
from hearth_controller.runs.outcome import Outcome

NODES = ["desk", "lap", "old"]


def answer(node, state="finished", rank=None, **more):
    rank = NODES.index(node) if rank is None else rank
    return {"node": node, "state": state, "rank": rank, "generation": 0, "nodes": NODES} | more


def test_the_nodes_are_those_of_the_last_launch_in_its_order():
    early = answer("old", generation=0, nodes=["old", "desk"])
    late = answer("lap", generation=1, nodes=["lap", "desk"])
    outcome = Outcome.from_answers([early, late])
    assert list(outcome.by_node) == ["lap", "desk"]
    assert outcome.by_node["desk"]["state"] == "lost"
    assert "not among the nodes of this command" in outcome.by_node["desk"]["message"]


def test_a_run_that_no_node_knows():
    unknown = [{"node": node, "state": "unknown", "message": "no run"} for node in NODES]
    outcome = Outcome.from_answers(unknown)
    assert list(outcome.by_node) == NODES
    assert not outcome.known
    assert all(outcome.files(node, "r1") == {} for node in (*NODES, "elsewhere"))
    assert Outcome.from_answers([answer("desk")]).known


def test_rank_0_has_the_record_and_the_results_and_each_node_its_log():
    outcome = Outcome.from_answers(map(answer, NODES))
    assert outcome.files("desk", "r1") == {
        "logs/desk.log": "logs/r1.log",
        "files/desk": "results/r1/files",
        **{
            name: f"results/r1/{name}"
            for name in ("run.yml", "metrics.jsonl", "adapter", "model", "best")
        },
    }
    assert outcome.files("lap", "r1").keys() == {"logs/lap.log", "files/lap"}
    assert not any(map(outcome.copies, NODES))


@pytest.mark.parametrize(
    ("desk", "lap", "stand_in"),
    [
        ({"state": "finished"}, {}, ""),
        ({"state": "lost"}, {}, "lap"),
        ({"state": "lost", "gone": True}, {}, ""),
        ({"state": "lost"}, {"state": "lost"}, "old"),
        ({"state": "lost"}, {"state": "lost", "gone": True}, "lap"),
    ],
)
def test_where_rank_0_is_silent_the_first_other_node_gives_its_copy(desk, lap, stand_in):
    answers = [answer("desk", **desk), answer("lap", **lap), answer("old")]
    outcome = Outcome.from_answers(answers)
    assert outcome.stand_in == stand_in
    for node in ("lap", "old"):
        files = outcome.files(node, "r1")
        assert ("metrics.jsonl" in files) == (node == stand_in)
        assert bool(outcome.copies(node)) == (node == stand_in)
        assert "adapter" not in files


def test_nobody_stands_in_where_no_node_answers():
    outcome = Outcome.from_answers(answer(node, "lost") for node in NODES)
    assert outcome.stand_in == ""


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(ROOT / "tests/fixtures/run/evening", tmp_path / "evening")


def test_a_run_is_closed_with_its_outcome_on_record_its_report_and_a_text(folder):
    answers = [answer(node, script="", failed=False) for node in NODES]
    outcome = Outcome.from_answers(answers, "ansible-playbook -i x")
    closing = close("evening", folder, outcome)
    assert (closing.changed, closing.warning) == (True, "")
    assert_names(closing.text, "evening finished", "80 of 80", "desk, lap, old")
    assert_names(closing.text, folder / "report.html")
    kept = json.loads((folder / "ends.json").read_text())
    assert kept["playbook"] == "ansible-playbook -i x"
    assert kept["ends"]["lap"].keys() == {"state", "rank", "generation", "nodes"}
    assert not close("evening", folder, outcome).changed


def test_of_a_script_there_is_no_report(folder):
    outcome = Outcome.from_answers([answer("desk", script="train.py")])
    assert not close("evening", folder, outcome).changed
    assert not (folder / "report.html").exists()


def test_a_report_that_cannot_be_written_does_not_hide_how_the_run_ended(folder):
    (folder / "report.html").mkdir()
    closing = close("evening", folder, Outcome.from_answers(map(answer, NODES)))
    assert "no report could be written" in closing.warning
    assert closing.text.startswith("evening finished")
