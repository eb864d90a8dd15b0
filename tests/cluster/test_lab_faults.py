"""Nothing is lost: a fault on one of three machines in the middle of a run.

Each week plays some kinds of fault on some nodes, on three days (support/rotated.py). `python -m
tests.bench.faults` plays every kind on every node, and writes down what came of it.
"""

from __future__ import annotations

import base64
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from safetensors.torch import load
from support.facts import assert_names
from support.lab import Controller, as_root, at_home, bring, inside, lab, on, write_down
from support.local_cluster import TINY
from support.ranks import apart, arguments_of, beginning, change, trained
from support.rotated import ALL, SEED, of_this_week
from support.runs import (
    checksum,
    cluster,
    end,
    lines,
    newest,
    ranks,
    record,
    start,
    steps,
    units,
    until_state,
    until_step,
    until_together,
)
from support.waiting import until

from hearth.config import load_preset
from hearth.model.fetch import fetch_model
from hearth_lab import network, plan

pytestmark = [pytest.mark.lab, pytest.mark.long]

NODES = tuple(node.name for node in plan.nodes(3))
KINDS = ("kill", "power", "cable", "flap", "disk")
A_WEEK = 6
# Large steps of so small a model make much of a rounding; no step must know which is the last.
SETTINGS = {
    **{"max_steps": 100_000, "checkpoint_every": 20, "global_batch": 24},
    **{"learning_rate": 1e-4, "schedule": "constant", "precision": "fp32"},
}
WITHIN = 1e-3
FLAP = 2.0
"""A cable with a bad contact is out for these seconds."""

CHECKPOINTS = "/home/lab/ai-cluster/checkpoints"
FULL = f"{CHECKPOINTS}/something-else-that-is-large"


def of_day(number: int) -> pytest.MarkDecorator:
    """Return the mark of one of the three days."""
    return pytest.mark.rotated(f"faults on machines {number % 3}")


def chosen() -> list:
    """Return kind and node of the faults to play."""
    each = [(kind, node) for kind in KINDS for node in NODES]
    played = each if ALL else of_this_week(each, A_WEEK)
    return [pytest.param(*fault, marks=of_day(n)) for n, fault in enumerate(played)]


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data) -> Iterator[Controller]:
    with cluster(tmp_path_factory.mktemp("home"), NODES, tiny_model, tiny_data) as controller:
        yield controller


def inflict(kind: str, node: str) -> None:
    """Do it. A small file system of its own stands in for a disk that another program fills."""
    match kind:
        case "kill":
            inside(node, f"kill -9 {max(ranks(node))}", status=0)
        case "power":
            lab("cut", node)  # the lab's machines take a moment to go off; a power cut does not
            lab("power-off", node)
        case "cable":
            lab("cut", node)
        case "disk":
            fill = f"dd if=/dev/zero of={FULL} bs=1M oflag=append conv=notrunc"
            said = inside(node, fill, status=1)
            assert "No space left on device" in said


def mend(kind: str, node: str) -> None:
    match kind:
        case "power":
            lab("join", node)
            lab("power-on", node)
        case "cable":
            lab("join", node)
        case "disk":
            inside(node, f"rm {FULL}", status=0)


@pytest.mark.parametrize(("kind", "node"), chosen(), ids=lambda word: f"{word}-{SEED}")
def test_what_was_learned_is_what_one_process_learns(home, tmp_path, kind, node):
    run, at = f"{kind}-{node}", random.Random(f"{SEED}{kind}{node}").randrange(3, 30)
    others = [name for name in NODES if name != node]
    if kind == "disk":
        as_root(node, f"mount -t tmpfs -o size=1200m,mode=1777 tmpfs {CHECKPOINTS}")
    try:
        start(home, run, **SETTINGS)
        if kind == "disk":  # nearly, once the ranks have looked; what is left takes no time then
            until_step(run, 1)
            inside(node, f"fallocate -l 1100M {FULL}", status=0)
        until_step(run, at)
        found = {
            "flap": loses_nothing,
            "disk": goes_on_without_checkpoints,
        }.get(kind, goes_on_without)(home, run, kind, node, others)
        on(others[0], f"systemctl --user stop hearth-{run}.service")
        until_state("stopped", run, NODES)
        far = apart_from_one_process(home, run, tmp_path)
        assert far < WITHIN
        for name in NODES:
            until(lambda name=name: units(name) == "")
        write_down(kind=kind, node=node, step=at, apart=far, **found)
    finally:
        mend_for_others(kind, node)
        end(NODES, [run])
        if kind == "disk":
            as_root(node, f"umount {CHECKPOINTS}")


def goes_on_without(
    home: Controller, run: str, kind: str, node: str, others: list[str]
) -> dict[str, float]:
    """Lose a node: the others go on, and take it in again. Return what that costs them."""
    before, began = newest(others[0], run), time.time()
    inflict(kind, node)
    without = until_together(run, before, others, NODES)
    if kind != "kill":  # its rank is back within seconds, and then there is nothing to see
        assert record(others[0], run)["state"] == "running"
        assert node in at_home(others[0], f"cat ai-cluster/logs/{run}.log")
        held = {name: ranks(name) for name in others}
    mended = time.time()
    mend(kind, node)
    back = until_together(run, without["step"], NODES, NODES)
    if kind != "kill":
        assert {name: ranks(name) for name in others} == held, "they were started anew"
    teams = [line for line in lines(others[0], run) if line["kind"] == "team"]
    assert [team["nodes"] for team in teams[-2:]] == [others, [*NODES]]
    assert ([*teams[-2]["left"]], teams[-1]["joined"]) == ([node], [node])
    return {
        "seconds_until_on": moment(without) - began,
        "seconds_until_in": moment(back) - mended,
        "seconds_waited": longest_wait(run, others[0], mended, back["step"]),
    }


def loses_nothing(home: Controller, run: str, kind: str, node: str, others: list[str]) -> dict:
    """Cut a cable for a moment: all wait, and none is lost."""
    generation, before = record(node, run)["generation"], newest(node, run)
    its = plan.machine_named(node)
    network.cable(its, whole=False)  # `lab cut` and `lab join` would take longer than the moment
    time.sleep(FLAP)
    network.cable(its, whole=True)
    mended = time.time()
    back = until_together(run, max(before, newest(node, run)) + 1, NODES, NODES)
    assert record(node, run)["generation"] == generation
    return {"seconds_until_in": moment(back) - mended}


def goes_on_without_checkpoints(
    home: Controller, run: str, kind: str, node: str, others: list[str]
) -> dict:
    """Fill a disk: its node trains on without checkpoints, and writes again once it is free."""
    generation = record(node, run)["generation"]

    def failing() -> list[dict[str, str]]:
        return [line["failing"] for line in lines(others[0], run) if line["kind"] == "disk"]

    inflict(kind, node)
    until(lambda: bool(failing()))
    assert [*failing()[0]] == [node]
    assert_names(failing()[0][node], "No space left")
    mend(kind, node)
    mended = time.time()
    until(lambda: failing()[-1] == {})
    back = until_together(run, newest(others[0], run), NODES, NODES)
    assert record(node, run)["generation"] == generation
    return {"seconds_until_in": moment(back) - mended}


def moment(line: dict) -> float:
    """Return when a line of a record was written, in seconds since 1970."""
    return datetime.fromisoformat(line["time"]).timestamp()


def longest_wait(run: str, node: str, since: float, step: int) -> float:
    """Return the longest pause between two steps from a time on, up to this one."""
    of_steps = [line for line in lines(node, run) if line["kind"] == "step"]
    times = [moment(line) for line in of_steps if line["step"] <= step and moment(line) >= since]
    return max((after - before for before, after in pairwise(times)), default=0.0)


def apart_from_one_process(home: Controller, run: str, folder: Path, **own: object) -> float:
    """Require every step once on record everywhere and one result; compare it.

    `own` are settings of this run alone.
    """
    last = newest("tower", run)
    for name in NODES:
        assert steps(run, name) == list(range(1, last + 1)), name
    kept = f"ai-cluster/checkpoints/{run}/step-{last:08d}/adapter/adapter_model.safetensors"
    assert len({checksum(name, kept) for name in NODES}) == 1
    same = {"model": str(home.model), "dataset": str(home.data), **TINY, **SETTINGS, **own}
    same |= {"max_steps": last, "micro_batch": same["global_batch"], "eval_held_out": False}
    begun = beginning(same)
    undisturbed = change(trained(folder, "undisturbed", 1, *arguments_of(same)), begun)
    found = load(base64.b64decode(at_home("tower", f"base64 {kept}")))
    return apart(change(found, begun), undisturbed)


def mend_for_others(kind: str, node: str) -> None:
    """Leave the machines as they were, also where the test broke off in the middle."""
    lab("join", node, status=None)
    lab("power-on", node, status=None)
    if kind == "disk":
        inside(node, f"rm -f {FULL}")


@pytest.fixture
def smollm2() -> Iterator[Path]:
    """SmolLM2 on all machines, in a folder that is at the same place on each."""
    kept = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="hearth-test-"))
    try:
        held = fetch_model(load_preset("smollm2-135m").source("smollm2-135m"), kept)
        bring(held.path, NODES)
        yield held.path
    finally:
        shutil.rmtree(kept)


@of_day(0)
def test_a_real_model_too_loses_the_leader_and_learns_the_same(home, smollm2, tmp_path):
    run, others = "real", ["laptop", "oldbox"]
    own = {"model": str(smollm2), "global_batch": 6, "sequence_length": 64}
    try:
        start(home, run, **SETTINGS | own)
        until_step(run, 3)
        found = goes_on_without(home, run, "kill", "tower", others)
        on("laptop", f"systemctl --user stop hearth-{run}.service")
        until_state("stopped", run, NODES)
        far = apart_from_one_process(home, run, tmp_path, **own)
        assert far < WITHIN
        write_down(kind="kill", node="tower", step=3, model="SmolLM2-135M", apart=far, **found)
    finally:
        end(NODES, [run])


@of_day(2)
def test_a_machine_that_takes_a_nodes_address_is_named_with_its_mac(home):
    run, its, own = "twice", *plan.nodes(3)[1:]
    take = f"ip address {{}} {its.address}/{plan.PREFIX} dev {own.card}"
    start(home, run, **SETTINGS)
    try:
        until_step(run, 3)
        as_root(own.name, take.format("add"))
        log = f"cat ai-cluster/logs/{run}.log"
        until(lambda: own.mac in at_home(own.name, log) and its.mac in at_home(own.name, log))
    finally:
        as_root(own.name, take.format("del"))
        end(NODES, [run])


@of_day(1)
def test_of_machines_that_are_cut_off_from_each_other_at_most_one_part_trains(home, tmp_path):
    """Rank 0's machine is alone at first; then of the other two each is."""
    run = "parted"
    start(home, run, **SETTINGS)
    try:
        until_step(run, 5)
        before = newest("laptop", run)
        for cut, trains in (("tower", ["laptop", "oldbox"]), ("oldbox", ["laptop"])):
            lab("cut", cut)
            before = until_together(run, before, trains, NODES)["step"]
            idle = {name: newest(name, run) for name in NODES if name not in trains}
            time.sleep(8)  # beyond the silence that counts as a loss
            before = until_together(run, newest("laptop", run), trains, NODES)["step"]
            assert {name: newest(name, run) for name in idle} == idle
        for joined in ("tower", "oldbox"):
            lab("join", joined)
        until_together(run, before, NODES, NODES)
        on("laptop", f"systemctl --user stop hearth-{run}.service")
        until_state("stopped", run, NODES)
        assert apart_from_one_process(home, run, tmp_path) < WITHIN
    finally:
        for name in NODES:
            lab("join", name, status=None)
        end(NODES, [run])
