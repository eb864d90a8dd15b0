"""On machines with systemd a run is a unit of its user: no sudo, no leftovers, safe in the dark."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.lab import READY, Controller, as_root, as_user, at_home, inside, is_on, lab, on
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
    until_together,
)
from support.waiting import until

from hearth_lab import plan

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.rotated("runs are units")]

API_KEY = "planted9876543210planted9876543210planted"
NODES = tuple(node.name for node in plan.nodes(2))


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data) -> Iterator[Controller]:
    """A controller, and two provisioned machines that have its tiny model."""
    with cluster(tmp_path_factory.mktemp("home"), NODES, tiny_model, tiny_data) as controller:
        yield controller


@pytest.fixture
def started(home):
    """Start an unwatched run; end it, come what may."""
    runs = []

    def begin(run: str, *words: str, **settings: int) -> None:
        runs.append(run)
        start(home, run, *words, **settings)

    yield begin
    end(NODES, runs)


def holding(node: str) -> str:
    """Return the files of a machine's user that hold the planted key."""
    return at_home(node, f"grep -rl {API_KEY} ~ /tmp /run/user/$(id -u) 2>/dev/null || true")


def test_a_run_is_a_unit_that_outlives_its_controller_and_is_gone_after_its_end(
    home, started, monkeypatch
):
    monkeypatch.setitem(home.environment, "WANDB_API_KEY", API_KEY)
    started("first", max_steps=200)
    for node in NODES:
        secrets = "ai-cluster/config/first.secrets"  # that a restarted supervisor reads again
        assert holding(node) == f"/home/lab/{secrets}"
        assert as_user(node, f"stat -c %a {secrets}") == "600"
        assert record(node, "first")["unit"] == "hearth-first.service"
        assert "enabled" in as_user(node, "systemctl --user is-enabled hearth-first.service")
        as_user(node, "test $(stat -c %a ai-cluster/config/first.json) = 600")
        as_user(node, "! grep -rq token ~/.config/systemd")
    for node in NODES:
        until(lambda node=node: record(node, "first")["state"] == "finished")
        until(lambda node=node: units(node) == "")
        assert holding(node) == ""
        assert inside(node, f"journalctl --no-pager | grep -c {API_KEY}") == "0"
    assert on("tower", "sudo -n true 2>&1 || echo asks").endswith("asks")


def goes_on_and_takes_in_again(run: str, before: int) -> None:
    """Require tower to go on without laptop after a step, then both; no other was ever lost."""
    alone = until_together(run, before, ["tower"], NODES)
    until_together(run, alone["step"], NODES, NODES)
    for node in NODES:
        until(lambda node=node: record(node, run)["launches"])
        launches = record(node, run)["launches"]
        assert {launch["cause"]["node"] for launch in launches} == {"laptop"}


def stop(run: str) -> None:
    """Stop a run of both machines; require every step once on record and nothing left."""
    as_user("tower", f"systemctl --user stop hearth-{run}.service")
    until_state("stopped", run, NODES)
    last = newest("tower", run)
    for node in NODES:
        assert steps(run, node) == list(range(1, last + 1))
        until(lambda node=node: units(node) == "")


def test_a_supervisor_that_is_killed_comes_back_and_the_run_goes_on(started):
    started("third", max_steps=100_000)
    until_step("third", 12)
    for sign in ("KILL", "TERM"):
        before = newest("tower", "third")
        as_user("laptop", f"systemctl --user kill --kill-whom=main -s {sign} hearth-third.service")
        goes_on_and_takes_in_again("third", before)
    stop("third")


def test_the_systemd_of_the_user_or_the_machine_ends_and_the_run_goes_on(started):
    """A login meanwhile would start the user's systemd, too."""
    run, its = "reboot", "user@$(id -u lab)"
    started(run, max_steps=100_000)
    until_step(run, 12)
    for logout_or_oom in ("stop", "kill --kill-whom=main -s KILL"):
        before = newest("tower", run)
        as_root("laptop", f"systemctl {logout_or_oom} {its}")
        goes_on_and_takes_in_again(run, before)
        assert as_root("laptop", f"systemctl is-active {its}") == "active"
    before = newest("tower", run)
    as_root("laptop", "systemctl poweroff --no-block")
    until_together(run, before, ["tower"], NODES)
    until(lambda: not is_on("laptop"))
    lab("power-on", "laptop")
    goes_on_and_takes_in_again(run, before)
    assert "this machine is being shut down" in at_home("laptop", f"cat ai-cluster/logs/{run}.log")
    stop(run)


def test_after_a_power_cut_in_the_whole_house_the_run_goes_on(started):
    started("fourth", max_steps=100_000, checkpoint_every=10, global_batch=16)
    until_step("fourth", 15)
    dark()
    for node in NODES:
        lab("join", node)
    lab("power-on", *NODES)
    until(lambda: len(begun("fourth")) > 1)
    first, *later = begun("fourth")
    assert first == 0
    assert min(later) >= 10
    until_together("fourth", later[0], NODES, NODES)
    stop("fourth")


def begun(run: str) -> list[int]:
    """Return the steps where tower's ranks began or resumed a run."""
    log = at_home("tower", f"cat ai-cluster/logs/{run}.log")
    return [int(step) for step in re.findall(rf"^run {run}: step (\d+) ", log, re.MULTILINE)]


def dark() -> None:
    """Cut the power of all machines at once.

    The lab's go off one after another, so the switch goes first, as it would.
    """
    for node in NODES:
        lab("cut", node)
    lab("power-off", *NODES)


def test_a_node_that_would_slow_the_run_down_is_left_out_by_name(home):
    measured = home.tiny(split="auto", micro_batch="auto", lora_rank=64, max_steps=2)
    lab("link", "laptop", "10mbit")  # what the gradients cross, in more time than they save
    try:
        screen = home.play("train.yml", *READY, "-e", "run=best", *measured)
        left_out = re.search(r"LEFT OUT: (\w+)\. With all nodes a step would take", screen)[1]
        (alone,) = {*NODES} - {left_out}  # whichever was measured to be faster
        assert re.search(rf"best finished: 2 of 2 steps on {alone}( in|\n)", screen)
        screen = home.play("playbooks/attach.yml", "-e", "run=best")
        assert re.search(rf"best finished: 2 of 2 steps on {alone}( in|\n)", screen)
        results = "ls -d ai-cluster/results/best"
        assert at_home(alone, results) == "ai-cluster/results/best"
        assert at_home(left_out, results) != "ai-cluster/results/best"
    finally:
        lab("link", "laptop", "off")
