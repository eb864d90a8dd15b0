"""A run whose held-out loss falls no further finishes early, wherever its rows are computed."""

from __future__ import annotations

import json

import pytest
from support.facts import assert_names
from support.ranks import (
    figures,
    furthest,
    learned,
    metrics,
    refused,
    stopped,
    succeeded,
    train_forked,
    trained,
)

from hearth.record.story import read_story

STEPS, PATIENCE = 40, 2


@pytest.fixture(scope="module")
def common(arguments):
    """Return the arguments of a run that learns fast and logs less than it evaluates."""
    return [
        *(*arguments, "--precision", "fp64", "--learning-rate", 0.02, "--schedule", "constant"),
        *("--max-steps", STEPS, "--eval-every", 2, "--log-every", 7, "--early-stop", PATIENCE),
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory, common):
    """Return a folder with the run `night` of one rank, and its metrics."""
    cwd = tmp_path_factory.mktemp("alone")
    done = succeeded(train_forked(cwd, 1, "--run-name", "night", *common))
    return cwd, cwd / "runs" / "night", done.stdout


def judged(folder):
    return [(each["step"], each["loss"]) for each in metrics(folder, "evaluate")]


def test_it_ends_in_order_after_so_many_evaluations_and_says_why(alone):
    cwd, night, said = alone
    (end,) = metrics(night, "end")
    assert end["state"] == "finished"
    assert_names(end["reason"], "held-out loss", PATIENCE)
    assert_names(said, f"step {end['step']} of {STEPS}", end["reason"])
    during = figures(night, "evaluate", "loss")[:-1]  # the last is that after training
    best = during.index(min(during))
    assert len(during) == best + 1 + PATIENCE
    assert end["step"] == 2 * len(during) < STEPS
    assert figures(night, "evaluate", "when")[-1] == "after"
    assert figures(night, "step", "step")[-1] == end["step"]
    story = read_story(night)
    assert (story.state, story.step, story.reason) == ("finished", end["step"], end["reason"])
    assert furthest(learned(cwd, "night"), learned(cwd, "night", "best")) > 0


def test_unequal_ranks_end_at_the_same_step_with_the_same_weights(alone, common, tmp_path):
    cwd, night, _ = alone
    found = trained(tmp_path, "night", 3, *common, "--split", "4:2:1")
    assert furthest(found, learned(cwd, "night")) < 1e-6
    assert furthest(learned(tmp_path, "night", "best"), learned(cwd, "night", "best")) < 1e-9
    assert figures(tmp_path / "runs" / "night", "end", "step") == figures(night, "end", "step")


@pytest.mark.rotated
def test_the_count_goes_on_after_a_stop(alone, common, tmp_path):
    """The stop is after the first step; the checkpoints of the run keep the count."""
    _, night, _ = alone
    stopped(tmp_path, "night", 1, *common, "--log-every", 1)
    succeeded(train_forked(tmp_path, 1, "--resume", "night"))
    assert judged(tmp_path / "runs" / "night") == judged(night)


@pytest.mark.rotated
def test_a_run_that_ended_early_goes_on_only_with_more_patience(alone, tmp_path):
    cwd, night, _ = alone
    before, (end,) = learned(cwd, "night"), metrics(night, "end")
    (facts,) = night.glob(f"checkpoints/step-{end['step']:08}/checkpoint.json")
    assert json.loads(facts.read_text())["since_best"] == PATIENCE
    succeeded(train_forked(cwd, 1, "--resume", "night"))
    assert metrics(night, "end")[-1]["reason"] == end["reason"]
    assert furthest(learned(cwd, "night"), before) == 0
    succeeded(train_forked(cwd, 1, "--resume", "night", "--early-stop", PATIENCE + 1))
    (end,) = metrics(night, "end")
    assert end["step"] == 2 * (len(judged(night)) - 1)
    succeeded(train_forked(cwd, 1, "--resume", "night", "--early-stop", "none"))
    (end,) = metrics(night, "end")
    assert (end["step"], "reason" in end) == (STEPS, False)


def test_data_without_held_out_examples_are_refused(common, tmp_path, tiny_data):
    done = train_forked(tmp_path, 1, *common, "--held-out", 0)
    refused(done, "early_stop", tiny_data, "held_out=0.1", "early_stop=none")
    assert not (tmp_path / "runs").exists()
