"""The state of a run over all its nodes, and the tables of runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.digests import (
    ALONE,
    KILLED,
    LOST,
    WAITS,
    cause,
    digest,
    ended,
    metrics,
    run_file,
    team,
)
from support.facts import assert_names, refuses

from hearth.base.errors import LaunchError
from hearth.config import run_of, run_text
from hearth.config.adapter import Ancestor, StartAdapter
from hearth_controller.runs.digests import observed_runs
from hearth_controller.runs.listing import compare, listing, removal, removal_objection
from hearth_controller.runs.observed import GONE, ObservedRun, pick


def observed(desk, laptop) -> ObservedRun:
    """Return the run that two nodes know; None is a node that does not answer."""
    (run,) = observed_runs({"desk": desk and [desk], "laptop": laptop and [laptop]})
    return run


def test_a_run_under_way_tells_how_far_it_is():
    run = observed(digest("desk"), digest("laptop"))
    assert (run.state, run.alive, run.story.step, run.story.steps) == ("running", True, 30, 100)
    assert (run.story.loss, run.tokens_per_second, run.eta_seconds) == (2.125, 812.5, 200.0)
    assert run.checkpoint == {"step": 25, "age_seconds": 40.0}
    assert (run.missing, run.why) == ([], None)


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_a_run_that_has_ended_has_no_speed_and_no_time_left(state):
    run = observed(**ended(state, KILLED if state == "failed" else None))
    assert (run.state, run.alive, run.why is None) == (state, False, state != "failed")
    assert run.tokens_per_second is run.eta_seconds is None
    assert run.story.loss == 2.125


@pytest.mark.parametrize(("why", "state"), [(KILLED, "failed"), (LOST, "lost")])
def test_a_run_that_a_rank_failed_is_told_from_one_whose_node_vanished(why, state):
    run = observed(**ended("failed", why))
    assert (run.state, run.why) == (state, f"laptop: {why['message'].splitlines()[0]}")


def test_supervisors_that_are_gone_without_a_word_mean_a_lost_run():
    run = observed(digest("desk", alive=False), digest("laptop", alive=False))
    assert (run.state, run.alive) == ("lost", False)
    assert run.why == f"desk: {GONE}; laptop: {GONE}"


def test_the_others_know_better_than_a_node_that_went_down_before_the_end():
    down = digest("laptop", alive=False)
    assert observed(digest("desk", "finished", False), down).state == "finished"
    lost = observed(digest("desk", "failed", False, record_more={"cause": LOST}), down)
    assert lost.state == "lost"
    assert lost.parts["laptop"].state == "gone"


@pytest.mark.parametrize("kind", ["not_ready", "node_lost"])
@pytest.mark.parametrize("generation", [0, 1])
def test_nor_does_one_that_came_back_and_found_nobody_say_how_it_ended(kind, generation):
    alone = {"cause": cause("desk", kind, "desk did not answer"), "generation": generation}
    run = observed(
        digest("desk", "finished", False, record_more={"generation": 1}),
        digest("laptop", "failed", False, record_more=alone),
    )
    assert (run.state, run.why) == ("finished", None)


def test_a_node_that_works_on_a_run_of_which_it_has_not_heard_the_end_can_be_stopped():
    later = {"generation": 1, "nodes": ["laptop"], "rank": 0}
    run = observed(
        digest("desk", "waiting"), digest("laptop", "finished", False, record_more=later)
    )
    assert run.alive
    assert list(run.parts) == ["laptop", "desk"]
    assert pick([run], "evening", under_way=True) is run


def test_a_word_to_stop_that_nobody_took_is_of_no_launch_that_goes_on():
    left = digest("laptop", alive=False, asked="stop\n")
    assert not observed(digest("desk", record_more={"nodes": ["desk"]}), left).stopping
    assert observed(digest("desk", asked="stop\n"), left).stopping


def test_an_end_of_an_earlier_launch_says_nothing_of_the_last_one():
    run = observed(
        digest("desk", "running", False, record_more={"generation": 3}),
        digest("laptop", "stopped", False, record_more={"generation": 1}),
    )
    assert run.state == "lost"


@pytest.mark.parametrize(
    ("desk", "laptop", "missing", "why"),
    [
        (digest("desk", metrics=ALONE), None, ["laptop"], "goes on without laptop"),
        (digest("desk"), None, [], "laptop: does not answer"),  # it may well take part
        (
            *(digest("desk", metrics=ALONE), digest("laptop", "waiting"), ["laptop"]),
            "goes on without laptop",
        ),
        (
            *(digest("desk", "waiting", record_more=WAITS), None, ["laptop"]),
            "laptop: no sign of life for 15 s; waits for laptop",
        ),
    ],
)
def test_a_node_that_is_out_of_reach_or_left_out_is_named(desk, laptop, missing, why):
    run = observed(desk, laptop)
    assert (run.state, run.missing) == (desk["record"]["state"], missing)
    assert_names(run.why, why)


SILENT = "no sign of life for 6 s"
GONE_ON = metrics(teams=[team(1, 12, "desk", laptop=SILENT)])
IN_TEAM_1 = {"record_more": {"generation": 1}}


@pytest.mark.parametrize("laptop", [None, digest("laptop"), digest("laptop", "waiting")])
def test_a_node_that_is_not_in_the_team_is_missing_and_says_why_it_left(laptop):
    run = observed(digest("desk", metrics=GONE_ON, **IN_TEAM_1), laptop)
    assert (run.state, run.missing, run.team, run.regroups) == ("running", ["laptop"], ["desk"], 1)
    assert_names(run.why, f"goes on without laptop, which left after step 12 ({SILENT})")


def test_a_node_that_has_joined_again_is_not_missing():
    teams = [team(1, 12, "desk", laptop=SILENT), team(2, 20, "desk", "laptop")]
    now = {"metrics": metrics(teams=teams), "record_more": {"generation": 2}}
    run = observed(digest("desk", **now), digest("laptop", **now))
    assert (run.missing, run.why, run.team, run.regroups) == ([], None, ["desk", "laptop"], 2)


def test_a_team_of_an_earlier_group_says_nothing_of_who_is_missing():
    run = observed(digest("desk", metrics=GONE_ON, record_more={"generation": 2}), digest("laptop"))
    assert (run.missing, run.why) == ([], None)


@pytest.mark.parametrize("alive", [True, False])
def test_rank_0_may_be_the_one_that_left(alive):
    gone_on = metrics(step=31, teams=[team(1, 30, "laptop", desk="broke off")])
    # Its own record ends with the group that it was in.
    desk = digest("desk", metrics=metrics(step=30), alive=alive)
    run = observed(desk, digest("laptop", metrics=gone_on, **IN_TEAM_1))
    assert (run.state, run.story.step, run.team) == ("running", 31, ["laptop"])
    assert_names(run.why, "desk", "which left after step 30 (broke off)")


def test_a_team_that_no_trainer_wrote_is_left_out():
    teams = [{"kind": "team", "nodes": "desk"}, {"kind": ["team"]}]
    run = observed(digest("desk", metrics=metrics(teams=teams)), digest("laptop"))
    assert (run.missing, run.story.teams) == ([], [])


def test_of_a_node_that_was_not_asked_nothing_is_said():
    (run,) = observed_runs({"desk": [digest("desk")]})
    assert run.parts["laptop"].state == "not asked"
    assert (run.state, run.missing, run.why) == ("running", [], None)


def test_of_several_metrics_those_with_most_steps_count():
    behind = digest("laptop", "finished", False, metrics=metrics(step=25))
    assert observed(digest("desk", "finished", False), behind).story.step == 30
    # A node that is left out knows of steps that the last launch makes anew.
    again = metrics(step=4, nodes=["laptop"], generation=1)
    assert (
        observed(digest("desk", "finished", False), digest("laptop", metrics=again)).story.step == 4
    )
    # Rank 0's disk is gone: the copies that came with the checkpoints are what there is.
    assert observed(None, behind).story.step == 25


def test_a_run_that_one_node_only_has_heard_of_is_listed():
    nothing = digest("desk", record=None, metrics={}, checkpoint=None)
    run = observed(nothing, digest("laptop"))
    assert (run.parts["desk"].state, run.state) == ("unknown", "running")
    (torn,) = observed_runs({"desk": [nothing]})
    assert (torn.state, torn.story.steps, torn.checkpoint, torn.begun) == ("lost", 0, None, "")


def three() -> list[ObservedRun]:
    """Return a run under way and two that have finished later."""
    begun = {"a": ("running", 20), "b": ("finished", 22), "c": ("finished", 21)}
    digests = [
        digest("desk", state, name == "a", name=name, record_more={"since": f"2026-11-20T{hour}Z"})
        for name, (state, hour) in begun.items()
    ]
    return observed_runs({"desk": digests})


def test_runs_under_way_come_first_and_then_the_newest():
    assert [run.name for run in three()] == ["a", "b", "c"]
    assert pick(three()).name == "a"
    assert pick(three()[1:]).name == "b"
    assert pick(three(), "c").name == "c"


@pytest.mark.parametrize(
    ("runs", "name", "under_way", "facts"),
    [
        (three(), "d", False, ["'d'", "a, b, c"]),
        (three(), "b", True, ["b", "finished"]),
        (three()[1:], "", True, ["under way"]),
        ([], "", False, ["no run"]),
    ],
)
def test_a_run_that_is_not_there_is_refused_with_those_that_are(runs, name, under_way, facts):
    with refuses(LaunchError, *facts):
        pick(runs, name or None, under_way)


def test_the_list_has_a_line_a_run_and_two_parts_on_a_narrow_screen():
    run = observed(digest("desk"), digest("laptop"))
    titles, line = listing([run], 120)
    assert titles.split() == [
        *("run", "state", "step", "loss", "perplexity", "model", "begun", "took", "nodes")
    ]
    assert_names(line, "evening", "running", "30 of 100", "2.125", "48.44 → –", "1 min 35 s")
    narrow = listing([run], 60)
    assert len(narrow) == 5
    assert max(map(len, narrow)) <= 60
    assert narrow[4].endswith("desk, laptop")
    assert len(listing([], 80)) == 1


def test_two_runs_side_by_side_show_what_came_of_them_and_the_settings_that_differ(tmp_path):
    settings = {"a": {"lora_rank": 8}, "b": {"lora_rank": 16, "wandb": "off"}}
    files = {name: run_file(tmp_path, name, **own) for name, own in settings.items()}
    runs = [
        observed(digest("desk", "finished", False, name=name, run_file=text), None)
        for name, text in files.items()
    ]
    lines = compare(*runs)
    assert lines[0].split() == ["a", "b"]
    assert "perplexity  48.44" in "\n".join(lines)
    after = lines[lines.index("settings that differ:") + 1 :]
    assert [line.split() for line in after] == [["lora_rank", "8", "16"], ["wandb", "auto", "off"]]
    assert compare(runs[0], runs[0])[-1] == "no setting differs"


def test_two_runs_side_by_side_show_what_each_is_on_top_of(tmp_path):
    text = run_file(tmp_path, "a")
    start = StartAdapter("/mine", "ab" * 32, 5, lineage=(Ancestor("one", "sft", "likes", 7),))
    texts = (text, run_text(replace(run_of(text, "a"), start=start)))
    plain, on_top = (
        observed(digest("desk", "finished", False, name="a", run_file=each), None) for each in texts
    )
    (line,) = [line for line in compare(plain, on_top) if line.startswith("on top of")]
    assert_names(line, "one (sft on likes, 7 steps)")
    assert not any(line.startswith("on top of") for line in compare(plain, plain))


def test_a_run_whose_settings_nobody_knows_cannot_be_compared(tmp_path):
    known = digest("desk", "finished", False, run_file=run_file(tmp_path, "evening"))
    unknown = digest("desk", "finished", False, run_file="settings: {of_old: 1}")
    with refuses(LaunchError, "settings", "evening"):
        compare(observed(known, None), observed(unknown, None))


def test_what_would_be_removed_is_named_by_node_with_its_bytes():
    of_each = ["    results/evening  1.0 kB", "    logs/evening.log  24 B"]
    lines = removal(observed(**ended("finished")))
    assert lines == ["desk: 1.0 kB", *of_each, "laptop: 1.0 kB", *of_each]


def test_a_run_is_not_removed_while_it_may_be_alive():
    over = observed(**ended("finished"))
    assert removal_objection(over, ["oldbox"]) == ""
    assert_names(
        removal_objection(observed(digest("desk"), digest("laptop")), []), "evening", "stop"
    )
    assert_names(removal_objection(over, ["laptop"]), "laptop", "evening")
