"""A night of runs on machines with systemd: the queue needs no controller, and outlasts a restart.

The tests build on each other, in this order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from support.lab import Controller, as_root, at_home, at_once, is_on, lab, on
from support.runs import (
    cluster,
    end,
    newest,
    record,
    start,
    steps,
    units,
    until_state,
    until_step,
)
from support.waiting import until

from hearth_lab import plan

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.rotated("queue on machines")]

NODES = tuple(node.name for node in plan.nodes(2))
QUEUED = ("fails", "removed", "last", "late")


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data) -> Iterator[Controller]:
    """A controller, and two provisioned machines that have its tiny model."""
    with cluster(tmp_path_factory.mktemp("home"), NODES, tiny_model, tiny_data) as controller:
        yield controller
        end(NODES, ("evening", *QUEUED))


def why(node: str, run: str) -> str:
    return (record(node, run)["cause"] or {}).get("message", "")


def queue(node: str) -> list[str]:
    """Return the runs in the queue of a machine, in their order."""
    said = at_home(node, "cd ai-cluster/queue && for f in *.json; do echo $f; cat $f; done")
    places = {}
    for text in said.split("}"):
        name, brace, content = text.strip().partition("{")
        if brace:
            places[name.strip().removesuffix(".json")] = json.loads("{" + content + "}")
    return sorted(places, key=lambda run: places[run]["position"])


def restart() -> None:
    """Switch all machines off in order, and on again."""
    at_once(lambda node: as_root(node, "systemctl poweroff --no-block"), NODES)
    for node in NODES:
        until(lambda node=node: not is_on(node))
    lab("power-on", *NODES)


def test_four_runs_are_submitted_behind_the_one_under_way_and_one_is_removed(home):
    start(home, "evening", max_steps=100_000)
    until_step("evening", 3)
    for run in ("fails", "removed"):
        start(home, run, "-e", "queue=on", max_steps=4)
    began = time.monotonic()
    start(home, "last", "-e", "queue=on", max_steps=4)
    takes = timedelta(seconds=time.monotonic() - began)
    at = datetime.now().astimezone() + timedelta(minutes=2) + 3 * takes
    start(home, "late", "-e", f"at={at:%Y-%m-%dT%H:%M}", max_steps=4)
    for node in NODES:
        assert queue(node) == [*QUEUED]
        for run in QUEUED:
            assert record(node, run)["state"] == "queued"
            assert record(node, run)["unit"] == f"hearth-{run}.service"
    assert why("tower", "last") == "waits behind removed, 3rd in the queue"
    assert why("tower", "late").startswith("starts at ")
    home.play("playbooks/runs.yml", "-e", "delete=removed", "-e", "yes=on")
    for node in NODES:
        assert queue(node) == ["fails", "last", "late"]
        until(lambda node=node: "removed" not in units(node))
    # One that will fail, and of which nobody knows that yet.
    on("laptop", "rm ai-cluster/results/fails/run.yml")


def test_after_a_restart_of_all_machines_the_run_goes_on_and_the_others_wait_behind_it(home):
    """From here on, nothing is played: the computer that submitted the runs is switched off."""
    before = newest("tower", "evening")
    restart()
    until_step("evening", before + 3)
    for node in NODES:
        until(lambda node=node: record(node, "evening")["state"] == "running")
        until(lambda node=node: why(node, "last") == "waits behind fails, 2nd in the queue")
        assert why(node, "fails") == "waits behind evening, 1st in the queue"
        log = at_home(node, "cat ai-cluster/logs/last.log")
        assert "this machine is being shut down; the run keeps its place in the queue" in log
        assert "turn" not in log.partition("keeps its place")[2]


def test_one_after_the_other_they_train_though_one_fails_and_nothing_is_left(home):
    on("tower", "systemctl --user stop hearth-evening.service")
    until_state("stopped", "evening", NODES)
    until_state("failed", "fails", NODES)
    assert record("tower", "fails")["cause"]["node"] == "laptop"
    for run in ("last", "late"):
        until_state("finished", run, NODES)
        assert steps(run) == [1, 2, 3, 4]
    ends = [record("tower", run)["since"] for run in ("fails", "last", "late")]
    assert ends == sorted(ends)
    for node in NODES:
        until(lambda node=node: units(node) == "")
        assert at_home(node, "ls ai-cluster/queue") == ""
