"""The outcome of a run over its nodes, the files that come from each, and its record here."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import pytest
from support.facts import assert_names
from support.plugins import load
from support.repository import ROOT

from hearth_controller.report.closing import close
from hearth_controller.runs.outcome import Outcome

NODES = ["desk", "lap", "old"]


def answer(node, state="finished", **more):
    known = {"rank": NODES.index(node), "generation": 0, "nodes": NODES}
    return {"node": node, "state": state, **known, **more}


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
    own = ("run.yml", "metrics.jsonl", "adapter", "model", "best")
    assert outcome.files("desk", "r1") == {
        "logs/desk.log": "logs/r1.log",
        "files/desk": "results/r1/files",
        **{name: f"results/r1/{name}" for name in own},
    }
    assert outcome.files("lap", "r1").keys() == {"logs/lap.log", "files/lap"}
    assert not any(map(outcome.copies, NODES))
    under_slurm = Outcome.from_answers([answer("desk", job="12")])
    assert under_slurm.files("desk", "r1")["logs/desk.job.log"] == "results/r1/job.log"


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        ("finished finished", "finished"),
        ("finished lost", "finished"),
        ("finished stopped", "stopped"),
        ("stopped stopped", "stopped"),
        ("finished failed", "failed"),
        ("failed lost", "failed"),
        ("lost lost", "lost"),
        ("gone lost", "failed"),
        ("running running", "lost"),
    ],
)
def test_the_state_of_a_run_is_that_of_the_nodes_that_know_its_end(ends, state):
    outcome = Outcome.from_answers(
        answer(node, end.replace("gone", "lost"), gone=end == "gone")
        for node, end in zip(NODES[:2], ends.split(), strict=True)
    )
    assert outcome.state == state
    assert bool(outcome.culprits) == (state in ("failed", "lost"))


def reached(step, generation=0, ended=False):
    return {"generation": generation, "step": step, "ended": ended}


@pytest.mark.parametrize(
    ("ends", "source"),
    [
        ("finished finished finished", "desk"),
        ("lost finished finished", "lap"),
        ("gone finished finished", "desk"),
        ("lost lost finished", "old"),
        ("lost gone finished", "lap"),
        ("lost lost lost", ""),
    ],
)
def test_where_rank_0_is_silent_the_first_other_node_gives_its_copy(ends, source):
    outcome = Outcome.from_answers(
        answer(node, end.replace("gone", "lost"), gone=end == "gone")
        for node, end in zip(NODES, ends.split(), strict=True)
    )
    assert outcome.source == source
    for node in ("lap", "old"):
        files = outcome.files(node, "r1")
        assert ("metrics.jsonl" in files) == (node == source)
        assert bool(outcome.copies(node)) == (node == source)
        assert "adapter" not in files


def files_of(outcome):
    """Return the source nodes of record and results."""
    files = {node: outcome.files(node, "r1") for node in NODES}
    return tuple(
        [node for node in NODES if name in files[node]] for name in ("metrics.jsonl", "adapter")
    )


def test_record_and_results_come_from_the_first_node_that_reached_furthest():
    ended = reached(60, 2, ended=True)
    assert files_of(Outcome.from_answers(answer(n, reached=ended) for n in NODES)) == (
        ["desk"],
        ["desk"],
    )
    # Rank 0's node was lost on the way, and has come back too late to train again.
    others = [answer(node, reached=ended) for node in NODES[1:]]
    back = Outcome.from_answers([answer("desk", reached=reached(20)), *others])
    assert files_of(back) == (["lap"], ["lap"])
    assert not any(map(back.copies, NODES))
    # It is off: the others have all of it.
    off = Outcome.from_answers([answer("desk", "lost"), *others])
    assert files_of(off) == (["lap"], ["lap"])
    assert off.copies("lap") and not off.copies("old")


def test_without_the_end_on_record_there_may_be_better_results_on_a_node_that_is_off():
    ends = [answer("desk", "lost"), *(answer(n, "failed", reached=reached(20)) for n in NODES[1:])]
    assert files_of(Outcome.from_answers(ends)) == (["lap"], [])
    ends[0] = answer("desk", "failed", reached=reached(9))
    assert files_of(Outcome.from_answers(ends)) == (["lap"], ["lap"])


def test_a_later_group_reached_further_than_one_with_more_steps():
    outcome = Outcome.from_answers(
        [
            answer("desk", "failed", reached=reached(30)),
            answer("lap", "failed", reached=reached(21, 1)),
        ]
    )
    assert outcome.source == "lap"


def test_what_interrupted_a_run_is_told_by_the_node_that_saw_most_of_it():
    saw = [{"generation": 0}, {"generation": 1}]
    outcome = Outcome.from_answers(
        [answer("desk", launches=saw[:1]), answer("lap", launches=saw), answer("old")]
    )
    assert outcome.launches == saw


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(ROOT / "tests/fixtures/run/evening", tmp_path / "evening")


def test_a_run_is_closed_with_its_outcome_on_record_its_report_and_a_text(folder):
    answers = [answer(node, script="", failed=False) for node in NODES]
    outcome = Outcome.from_answers(answers, "hearth -i x")
    closing = close("evening", folder, outcome)
    assert (closing.changed, closing.warning) == (True, "")
    assert_names(closing.text, "evening finished", "80 of 80", "desk, lap, old")
    assert_names(closing.text, folder / "report.html")
    kept = json.loads((folder / "ends.json").read_text())
    assert kept["hearth"] == "hearth -i x"
    assert kept["ends"]["lap"].keys() == {"state", "rank", "generation", "nodes"}
    facts = json.loads(json.dumps(closing.facts))
    assert (facts["run"], facts["state"], facts["step"]) == ("evening", "finished", 80)
    assert (facts["folder"], facts["nodes"]) == (str(folder), list(NODES))
    assert not close("evening", folder, outcome).changed


def test_a_run_that_ended_early_says_why_in_its_report_and_its_text(folder):
    metrics = folder / "metrics.jsonl"
    *lines, end = metrics.read_text().splitlines()
    reason = "no lower held-out loss in 3 evaluations in a row"
    early = json.dumps(json.loads(end) | {"step": 60, "reason": reason})
    metrics.write_text("\n".join([*lines, early]) + "\n")
    closing = close("evening", folder, Outcome.from_answers(map(answer, NODES)))
    assert_names(closing.text, "60 of 80", reason, "hearth resume evening --early-stop none")
    assert reason in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        (["finished"] * 3, "good"),
        (["stopped"] * 3, "degraded"),
        (["finished", "finished", "lost"], "degraded"),
        (["unknown"] * 3, None),
    ],
)
def test_the_play_sums_up_a_run_that_a_node_knows(folder, states, verdict):
    answers = [answer(node, state) for node, state in zip(NODES, states, strict=True)]
    given = {"run": "evening", "folder": str(folder), "answers": answers}
    task = SimpleNamespace(args=given, async_val=0, check_mode=False)
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=""))
    result = load("action", "hearth_summary").ActionModule(task, connection, *[None] * 3).run()
    assert (result.get("verdict"), result.get("skipped", False)) == (verdict, verdict is None)
    assert ("say" in result) == (verdict is not None)


def test_of_a_script_there_is_no_report(folder):
    outcome = Outcome.from_answers([answer("desk", script="train.py")])
    assert not close("evening", folder, outcome).changed
    assert not (folder / "report.html").exists()


def test_a_report_that_cannot_be_written_does_not_hide_how_the_run_ended(folder):
    (folder / "report.html").mkdir()
    closing = close("evening", folder, Outcome.from_answers(map(answer, NODES)))
    assert "no report could be written" in closing.warning
    assert closing.text.startswith("evening finished")
