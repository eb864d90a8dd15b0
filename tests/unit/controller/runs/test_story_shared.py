"""Summary and report of what followed the training: scores, copies, pushes."""

from __future__ import annotations

import shutil
from dataclasses import asdict

import pytest
from support.facts import assert_names
from support.metric_lines import start_line, step_line, story_of, written
from support.repository import ROOT

from hearth.record.events import Score
from hearth_controller.report.page import write_report
from hearth_controller.runs.outcome import Outcome
from hearth_controller.runs.summary import summary

SCORES = [Score("arc_easy", "acc", 0.52, 0.01, before=0.41, before_error=0.01, examples=2376)]
FOUND = {"kind": "scores", "what": "eval", "when": "after", "step": 12} | {
    "scores": [asdict(each) for each in SCORES]
}
END = {"kind": "end", "state": "finished", "step": 12}
FAILED = "push: the Hub does not answer"
AGAIN = "hearth share --run r --push ada/x"


def shared(what, **more):
    return {"kind": "shared", "what": what, "when": "after", "step": 12, **more}


def closing(*lines):
    """Return the closing text of a finished run with these lines after its end."""
    outcome = Outcome({"desk": {"state": "finished"}})
    return summary(
        "r",
        "-e model=m",
        story_of(start_line("desk"), step_line(100), END, *lines),
        outcome,
        "runs/r",
        ["adapter"],
    )


def test_the_summary_has_scores_and_all_places():
    text = closing(
        FOUND,
        shared("copy_to", place="/mnt/nas/r"),
        shared("push", place="https://hub/ada/x"),
        shared("push", place="https://hub/home/x"),
    )
    assert_names(text, "arc_easy", "0.41", "0.52", "better", "/mnt/nas/r")
    assert_names(text, "https://hub/ada/x", "https://hub/home/x")


def test_what_failed_has_its_cause_and_the_line_that_repeats_it_until_it_is_done():
    failed = shared("push", error=FAILED, again=AGAIN)
    assert_names(closing(failed), FAILED, AGAIN)
    done = closing(failed, shared("push", place="https://hub/ada/x"))
    assert FAILED not in done
    assert_names(closing(shared("eval", error="eval: no memory", again="again!")), "no memory")
    assert "no memory" not in closing(shared("eval", error="eval: no memory", again="a"), FOUND)


def test_a_finished_run_ends_with_the_lines_that_share_it_and_score_it():
    assert_names(closing(), "hearth share r", "hearth eval hellaswag --run r")


@pytest.mark.parametrize(
    ("state", "saved", "advised"),
    [("finished", True, False), ("failed", True, True), ("failed", False, False)],
)
def test_only_a_run_that_ended_early_with_a_checkpoint_is_advised_to_go_on(state, saved, advised):
    checkpoint = [{"kind": "checkpoint", "step": 12}] * saved
    story = story_of(start_line("desk"), step_line(12), *checkpoint)
    text = summary("r", "m", story, Outcome({"desk": {"state": state}}), "runs/r", [])
    bare = [line for line in text.splitlines() if line.endswith("hearth resume r")]
    assert bool(bare) == advised


@pytest.mark.parametrize("damage", ["after", "task"])
def test_a_damaged_line_of_scores_costs_that_line_only(damage):
    scores = [asdict(SCORES[0]) | {damage: {"what": "this"}}]
    text = closing(FOUND | {"scores": scores}, shared("copy_to", place="/mnt/nas/r"))
    assert "arc_easy" not in text
    assert_names(text, "/mnt/nas/r")


def test_the_report_has_the_scores(tmp_path):
    folder = tmp_path / "evening"
    shutil.copytree(ROOT / "tests" / "fixtures" / "run" / "evening", folder)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(written(FOUND))
    assert_names(write_report(folder).read_text(), "arc_easy", "2,376", "better")
