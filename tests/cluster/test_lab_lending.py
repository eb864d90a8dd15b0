"""An evening on three machines: the owner takes each in turn, and it returns to the run.

The tests build on each other, in this order.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from support.facts import assert_line, assert_names
from support.lab import READY, Controller, as_root, at_home, inside, is_on, lab, on
from support.runs import (
    cluster,
    end,
    learned,
    lines,
    newest,
    ranks,
    record,
    start,
    steps,
    units,
    until_state,
    until_together,
)
from support.waiting import until

from hearth_lab import plan

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.rotated("lending on machines")]

RUN = "evening"
NODES = tuple(node.name for node in plan.nodes(3))
HEARTH_LEND = "ai-cluster/hearth-lend"

FREE_WITHIN = 60.0
"""Seconds from the end of a step within which the ranks of a machine are gone. Other labs take the
cores meanwhile; alone it is below 3."""


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data) -> Iterator[Controller]:
    """A controller and three provisioned machines, and laptop lends while it is idle."""
    with cluster(tmp_path_factory.mktemp("home"), NODES, tiny_model, tiny_data) as controller:
        hosts = Path(controller.inventory) / "hosts.yml"
        inventory = yaml.safe_load(hosts.read_text())
        inventory["cluster"]["hosts"]["laptop"] |= {"lend_when": "idle", "lend_after": 0.1}
        hosts.write_text(yaml.safe_dump(inventory, sort_keys=False))
        yield controller
        end(NODES, [RUN])


@contextmanager
def somebody_computes(node: str) -> Iterator[None]:
    """Have another user's program take a core of a machine, whatever else this computer does."""
    unit = ("--quiet", "--unit=game", "--uid=nobody", "--nice=-10")
    as_root(node, f"systemd-run {' '.join(unit)} /bin/sh -c 'while :; do :; done'")
    try:
        yield
    finally:
        as_root(node, "systemctl stop game")


@contextmanager
def leaving(node: str) -> Iterator[None]:
    """Require that this block takes a machine out of the run after its step.

    Its ranks must be gone soon after it, and the others must go on without it.
    """
    others = [each for each in NODES if each != node]
    before = newest(others[0], RUN)
    watch = " ".join(f"tail --pid={pid} --sleep-interval=0.05 -f /dev/null;" for pid in ranks(node))
    assert watch
    with ThreadPoolExecutor(1) as pool:
        ends = pool.submit(inside, node, f"{watch} date +%s.%N")
        yield
        gone = datetime.fromtimestamp(float(ends.result()), UTC)
    last = next(each for each in reversed(lines(node, RUN)) if each["kind"] == "step")
    seconds = (gone - datetime.fromisoformat(last["time"])).total_seconds()
    print(f"the ranks of {node} were gone {seconds:.2f} s after step {last['step']}")
    assert 0 <= seconds < FREE_WITHIN
    until_together(RUN, max(before, last["step"]), others, NODES)
    until(lambda: record(node, RUN)["away"])


def returns(node: str) -> None:
    """Require that a machine comes back into the run, whose others have kept their ranks."""
    others = [each for each in NODES if each != node]
    until_together(RUN, newest(others[0], RUN), NODES, NODES)
    until(lambda: record(node, RUN)["state"] == "running" and not record(node, RUN)["away"])


def test_a_machine_leaves_while_somebody_uses_it_and_returns(home):
    start(home, RUN, max_steps=1_000_000)
    until_together(RUN, 0, NODES, NODES)
    kept = {node: ranks(node) for node in NODES if node != "laptop"}
    with ExitStack() as evening:
        with leaving("laptop"):
            evening.enter_context(somebody_computes("laptop"))
        assert_names(record("laptop", RUN)["away"], "other programs take")
    returns("laptop")
    assert {node: ranks(node) for node in kept} == kept


def test_a_person_at_a_machine_takes_it_and_gives_it_back_without_ansible(home):
    with leaving("oldbox"):
        said = on("oldbox", f"{HEARTH_LEND} off")
        assert_names(said, "yours", f"{RUN} leaves", f"{RUN} is without it")
        assert ranks("oldbox") == []  # the command returns once the machine is free
    assert_line(on("oldbox", HEARTH_LEND), RUN, "switched off by hand")
    on("oldbox", f"{HEARTH_LEND} auto")
    returns("oldbox")


def test_the_machine_of_rank_0_is_taken_and_given_back_from_the_controller(home):
    lend = ("playbooks/lend.yml", *READY, "-e", "nodes=tower")
    with leaving("tower"):
        home.play(*lend, "-e", "lend=off")
    assert_line(home.play(*lend), "tower", "off", RUN, "away since", "switched off by hand")
    home.play(*lend, "-e", "lend=auto")
    returns("tower")


def test_a_machine_that_is_restarted_while_it_is_away_stays_away_until_it_lends_again(home):
    with leaving("laptop"):
        on("laptop", f"{HEARTH_LEND} off --no-wait")
    as_root("laptop", "systemctl poweroff --no-block")
    until(lambda: not is_on("laptop"))
    before = newest("tower", RUN)
    until_together(RUN, before, ["tower", "oldbox"], NODES)
    lab("power-on", "laptop")
    until(lambda: at_home("laptop", f"cat ai-cluster/logs/{RUN}.log").count("is rank 1 of 3") == 2)
    until(lambda: record("laptop", RUN)["away"].startswith("switched off by hand"))
    until_together(RUN, newest("tower", RUN), ["tower", "oldbox"], NODES)
    assert ranks("laptop") == []
    on("laptop", f"{HEARTH_LEND} auto")
    returns("laptop")


def test_the_evening_leaves_every_step_once_on_every_machine_and_one_result(home):
    home.play("playbooks/stop.yml", *READY, "-e", f"run={RUN}")
    until_state("stopped", RUN, NODES)
    last = newest("tower", RUN)
    waits = [line["waited"] for line in lines("oldbox", RUN) if line["kind"] == "team"]
    print(f"{last} steps; the others waited {waits} s for a leave or a return")
    for node in NODES:
        assert steps(node=node, run=RUN) == list(range(1, last + 1))
        assert learned(node, RUN) == learned("tower", RUN)
        until(lambda node=node: units(node) == "")
