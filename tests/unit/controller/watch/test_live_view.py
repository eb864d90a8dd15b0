"""A run folded from what its followers send, and its figures, events and curve."""

from __future__ import annotations

from support.facts import assert_names
from support.metric_lines import start_line, step_line, team_line
from support.relayed import lines, state

from hearth_controller.watch.chart import MARKER, chart
from hearth_controller.watch.rows import (
    figures,
    happenings,
    headline,
    node_rows,
    step_text,
    wrapped,
)
from hearth_controller.watch.view import RunView

NODES = ("desk", "laptop", "tower")
LATER = "2026-11-22T03:10:00.000+00:00"
START = start_line(*NODES, time=LATER, layout=list(NODES))
STEP = step_line(
    50, 30, 20, time=LATER, learning_rate=2e-4, eta_seconds=125, celsius_by_rank=[61, None, 48]
)
LEFT = team_line(
    12, "desk", "tower", time=LATER, left={"laptop": "no sign of life for 6 s"}, layout=[]
)
CUT = {"node": "laptop", "rank": None, "kind": "node_lost", "message": "its power failed"}
LAUNCHES = [{"generation": 0, "ended": LATER, "cause": CUT}]


def view_of(*records, by="desk", **more):
    """Return a run that is under way on three nodes, with these lines of metrics."""
    view = RunView()
    for node in NODES:
        view.add(node, {"node": node, "run": "evening"}, 0)
        view.add(node, state(node, NODES, **more), 0)
    view.add(by, lines(*records, anew=True), 0)
    view.add(by, {"progress": "all nodes are ready"}, 0)
    return view


def test_each_node_has_its_speed_its_share_its_temperature_and_its_memory():
    desk, laptop, tower = node_rows(view_of(START, STEP), {}, 0)
    assert (desk.name, laptop.state, tower.state) == ("desk", "training", "training")
    assert_names(" ".join(desk.cells), "0", "50", "33%", "61 °C", "0.1 GB")
    assert "°C" not in " ".join(laptop.cells)
    assert_names(" ".join(tower.cells), "2", "20", "48 °C")


def test_the_status_adds_the_memory_of_graphics_cards_their_heat_and_the_traffic_of_a_link():
    gpu = {"used_mib": 8192, "total_mib": 16384, "celsius": 71}
    network = {"interface": "enp5s0", "received": 1_200_000, "sent": 900_000}
    health = {"desk": {"gpus": [gpu], "network": network}}
    desk, laptop, _ = node_rows(view_of(START, STEP), health, 0)
    assert_names(" ".join(desk.cells), "71 °C", "8.0/16 GB", "1.2 MB/s", "900.0 kB/s")
    assert "MB/s" not in " ".join(laptop.cells)


def test_a_node_that_left_the_team_is_not_training_and_one_that_is_silent_says_how_long():
    view = view_of(START, STEP, LEFT)
    for node in ("desk", "tower"):
        view.add(node, {"change": {}}, 100)
    desk, laptop, tower = node_rows(view, {}, 100)
    assert (desk.state, laptop.state, tower.state) == ("training", "left", "training")
    assert laptop.silent
    assert_names(laptop.cells[-1], "1 min 40 s")
    assert not desk.silent


def test_a_node_whose_owner_uses_it_is_away_and_one_before_its_ranks_run_is_loading():
    view = view_of(by="tower")
    assert view.state_of("desk", 0) == "loading"
    view.add("desk", state("desk", NODES, away="a game runs"), 0)
    assert view.state_of("desk", 0) == "away"
    view.add("desk", state("desk", NODES, state="waiting"), 0)
    assert view.state_of("desk", 0) == "waiting"


def test_before_the_first_step_the_run_is_evaluated_and_behind_the_last_one_it_is_saved():
    view = view_of(START)
    assert view.state_of("desk", 0) == "evaluating"
    assert step_text(view) == "all nodes are ready"
    view.add(
        "desk", lines(STEP, {"kind": "end", "step": 60, "state": "finished", "time": LATER}), 0
    )
    assert view.state_of("desk", 0) == "trained"
    assert "saving" in headline(view)


def test_the_run_has_its_steps_its_loss_its_speed_and_its_learning_rate():
    judged = [
        {
            "kind": "evaluate",
            "step": step,
            "when": "x",
            "perplexity": 9.0,
            "loss": loss,
            "time": LATER,
        }
        for step, loss in ((0, 3.5), (5, 3.1), (10, 2.75))
    ]
    view = view_of(START, *judged, STEP)
    assert_names(" ".join(figures(view)), "1.250", "3.500 → 2.750", "100 tokens/s", "0.0002")
    assert_names(step_text(view), "step 12/60", "2 min 5 s")


def test_what_happened_is_newest_first_and_a_loss_has_the_reason_that_supervisors_know():
    records = [
        {"kind": "checkpoint", "step": 10, "time": "2026-11-22T03:10:30.000+00:00"},
        LEFT | {"time": "2026-11-22T03:11:00.000+00:00", "generation": 1},
        {
            "kind": "skip",
            "step": 14,
            "rows": ["d.jsonl:7"],
            "time": "2026-11-22T03:12:00.000+00:00",
        },
    ]
    view = view_of(START, STEP, *records, launches=LAUNCHES)
    skipped, left, checkpoint, began = happenings(view.story)
    assert_names(skipped[1], "14", "d.jsonl:7")
    assert_names(left[1], "laptop left", "its power failed", "desk, tower")
    assert_names(checkpoint[1], "10")
    assert_names(began[1], *NODES)
    assert [alarm for _, _, alarm in (skipped, left, checkpoint, began)] == [
        True,
        True,
        False,
        False,
    ]
    assert left[0] > checkpoint[0]


def test_earlier_launches_are_history_and_the_figures_are_those_of_this_one():
    earlier = "2026-11-22T02:00:00.000+00:00"
    view = view_of(
        START | {"time": earlier}, STEP | {"time": earlier, "step": 8}, START | {"step": 8}, STEP
    )
    assert [each.step for each in view.story.windows] == [8, 12]
    assert len(view.leader.story.windows) == 1


def test_a_wait_names_its_node_and_its_cause():
    view = view_of(state="waiting", cause=CUT | {"message": "no sign of life\nand more"})
    assert headline(view) == "waiting: laptop: no sign of life"


def test_text_of_a_node_cannot_command_the_terminal():
    cause = CUT | {"node": "desk", "message": "\x1b]0;pwned\x07no memory"}
    view = view_of(state="failed", cause=cause)
    assert headline(view) == "failed: desk: no memory"
    view.add("desk", {"progress": "step\x1b[2J 1"}, 0)
    assert view.progress == "step 1"


def test_a_heartbeat_changes_nothing_but_the_time_of_the_last_sign():
    view = view_of(START, STEP)
    version = view.version
    view.add("desk", {"change": {}}, 50)
    assert (view.version, view.silent("desk", 60)) == (version, 10)


def test_a_falling_curve_goes_from_the_upper_left_to_the_lower_right():
    drawn = chart([(0, 4.0), (100, 2.0)], [(100, 2.0)], 40, 10)
    text = ["".join(piece.text for piece in line) for line in drawn]
    assert len(text) == 10
    assert {len(line) for line in text} == {40}
    first, last = text[0], text[-2]
    assert_names(first, "4.00")
    assert_names(last, "2.00")
    dots = [[char for char in line[8:] if char not in "\u2800"] for line in (first, last)]
    assert first[8] != "\u2800"
    assert last[-1] == MARKER
    assert all(dots)
    assert_names(text[-1], "step 0", "100")


def test_a_curve_of_one_point_is_drawn_and_none_without_points_or_space():
    assert chart([(3, 2.5)], [], 40, 10)
    assert chart([], [], 40, 10) == []
    assert chart([(3, 2.5)], [], 12, 3) == []
    assert chart([(1, float("nan")), (2, 1.0)], [], 40, 10)


def test_a_wide_table_is_wrapped_below_its_second_column():
    row = "  train longer  ansible-playbook train.yml -e resume=first"
    first, *rest = wrapped([row], 40)
    assert first.startswith("  train longer  ansible")
    assert rest and all(line.startswith(" " * 16) for line in rest)
