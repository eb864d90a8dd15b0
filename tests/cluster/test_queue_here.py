"""Runs in a queue on this computer: submitted, shown, moved, removed; and a start at a time.

The tests build on each other, in this order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta

import pytest
from support.facts import assert_line
from support.local_cluster import NODES, LocalCluster
from support.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.rotated("queue here"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data) -> Iterator[LocalCluster]:
    """A local cluster that trains the run `evening`."""
    with closing(LocalCluster(tmp_path_factory.mktemp("queue"), tiny_model, tiny_data)) as local:
        local.play("train.yml", *local.tiny(run="evening", max_steps=100_000), "-e", "wait=off")
        local.until_step("evening")
        yield local


def submit(home: LocalCluster, run: str, *words: str, max_steps: int = 3, status: int = 0) -> str:
    given = home.tiny(run=run, max_steps=max_steps, split="auto", eval_held_out=False)
    return home.play("train.yml", *given, *words, status=status)


def states(home: LocalCluster, run: str) -> set[str]:
    return {home.record(node, run)["state"] for node in NODES}


def queue(screen: str) -> list[str]:
    """Return the names of the runs in the table of the queue."""
    lines = [line.split() for line in screen.splitlines()]
    start = next(n for n, words in enumerate(lines) if words[:2] == ["queue", "run"])
    names = []
    for words in lines[start + 1 :]:
        if not words or not words[0][0].isdecimal():
            break
        names.append(words[1])
    return names


def test_a_busy_node_is_refused_without_the_queue_and_waited_for_with_it(home):
    screen = submit(home, "second", status=2)
    assert_line(screen, "'evening' is under way", "-e queue=on")
    assert "Prepare the node" not in screen  # refused before that
    for run in ("second", "third", "fourth"):
        screen = submit(home, run, "-e", "queue=on")
        assert_line(screen, "not measured, since evening has desk, laptop")
        assert_line(screen, "waits behind", "does not need this terminal")
        assert states(home, run) == {"queued"}
    assert states(home, "evening") == {"running"}


def test_the_queue_is_shown_in_its_order_with_the_reasons(home):
    assert queue(home.play("playbooks/runs.yml")) == ["second", "third", "fourth"]
    screen = home.play("playbooks/status.yml")
    assert_line(screen, "waits behind third, 3rd in the queue")
    assert "✓ all is well" in screen
    seen = json.loads(home.hearth("status", "--json").stdout)
    places = {run["name"]: run["place"] for run in seen["runs"]}
    assert places == {"evening": None, "second": 1, "third": 2, "fourth": 3}


def test_a_run_is_moved_and_another_one_removed(home):
    words = ("playbooks/runs.yml", "-e", "move=fourth", "-e", "place=1")
    assert queue(home.play(*words)) == ["fourth", "second", "third"]
    screen = home.play("playbooks/runs.yml", "-e", "move=evening", "-e", "place=1", status=2)
    assert_line(screen, "'evening'", "waits for its turn")
    screen = home.play("playbooks/runs.yml", "-e", "delete=second", "-e", "yes=on")
    assert "Remove the run" in screen
    assert queue(home.play("playbooks/runs.yml")) == ["fourth", "third"]
    for node in NODES:
        assert not (home.workspace(node) / "results/second").exists()
    screen = home.play("playbooks/stop.yml", "-e", "run=third")
    assert_line(screen, "third", "leaves the queue")
    assert states(home, "third") == {"stopped"}


def test_a_run_starts_at_its_time_and_not_before(home):
    # Cut to the minute; a busy computer takes more than one of them to submit a run.
    at = datetime.now().astimezone() + timedelta(minutes=4)
    screen = submit(home, "late", "-e", f"at={at:%Y-%m-%dT%H:%M}")
    assert_line(screen, "The run starts at", f"{at:%H:%M}")
    assert_line(home.play("playbooks/runs.yml"), "late", f"{at:%Y-%m-%d %H:%M}")
    assert states(home, "late") == {"queued"}
    home.play("playbooks/stop.yml")  # the one under way, not one that waits
    assert states(home, "evening") == {"stopped"}
    until(lambda: states(home, "fourth") == {"finished"})
    until(lambda: states(home, "late") == {"finished"})
    (begun,) = {home.record(node, "late")["began"] for node in NODES[:1]}
    assert datetime.fromisoformat(begun) >= at.replace(second=0, microsecond=0)
    screen = home.play("playbooks/attach.yml", "-e", "run=late")
    assert_line(screen, "late finished: 3 of 3 steps on desk, laptop")
    assert [*(home.workspace("desk") / "queue").iterdir()] == []


def test_a_time_that_is_none_and_a_job_of_slurm_are_refused(home):
    screen = submit(home, "never", "-e", "at=tonight", status=2)
    assert_line(screen, "-e at", "'tonight'")
    screen = submit(home, "never", "-e", "queue=on", "-e", "launcher=slurm", status=2)
    assert "--begin" in screen
