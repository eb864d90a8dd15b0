"""Nothing is lost: a fault on one of three machines in the middle of a run, and what it teaches.

Each day plays one kind of fault on one node (support/rotated.py). `python -m
tests.bench.faults` plays every kind on every node, and writes down what came of it.
"""

from __future__ import annotations

import base64
import json
import random
import time
from collections.abc import Iterator

import pytest
from safetensors.torch import load
from support.house import TINY
from support.lab import READY, Controller, as_root, at_home, inside, lab, on
from support.measured import write_down
from support.ranks import apart, arguments_of, beginning, change, trained
from support.rotated import ALL, SEED, of_today
from support.runs import (
    checksum,
    cluster,
    end,
    learned,
    ranks,
    record,
    start,
    steps,
    units,
    until_state,
    until_step,
)
from support.waiting import until

from hearth_lab import plan

pytestmark = [pytest.mark.lab, pytest.mark.long]

NODES = tuple(node.name for node in plan.nodes(3))
KINDS = ("kill", "power", "cable", "disk")
A_DAY = 1
STEPS = 60
SETTINGS = {"max_steps": STEPS, "checkpoint_every": 5, "global_batch": 24}

CHECKPOINTS = "/home/lab/ai-cluster/checkpoints"
FULL = f"{CHECKPOINTS}/something-else-that-is-large"


def chosen() -> list[tuple[str, str]]:
    """Return kind and node of the faults to play."""
    each = [(kind, node) for kind in KINDS for node in NODES]
    return each if ALL else of_today(each, A_DAY)


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data) -> Iterator[Controller]:
    with cluster(tmp_path_factory.mktemp("home"), NODES, tiny_model, tiny_data) as house:
        yield house


@pytest.fixture(scope="module")
def undisturbed(home) -> str:
    """Return the checksum of what a run without any fault teaches."""
    start(home, "undisturbed", **SETTINGS)
    until_state("finished", "undisturbed", NODES)
    return learned("tower", "undisturbed")


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


def down(nodes: list[str]) -> bool:
    """Tell whether neither torchrun nor a rank lives on these nodes."""
    return not any(ranks(node) for node in nodes)


@pytest.mark.parametrize(("kind", "node"), chosen(), ids=lambda word: f"{word}-{SEED}")
def test_what_was_learned_is_what_an_undisturbed_run_learns(home, undisturbed, kind, node):
    run, at = f"{kind}-{node}", random.Random(f"{SEED}{kind}{node}").randrange(3, STEPS // 2)
    others = [name for name in NODES if name != node]
    if kind == "disk":
        as_root(node, f"mount -t tmpfs -o size=1200m,mode=1777 tmpfs {CHECKPOINTS}")
    try:
        start(home, run, **SETTINGS)
        if kind == "disk":  # nearly, once the ranks have looked; what is left takes no time then
            until_step(run, 1)
            inside(node, f"fallocate -l 1100M {FULL}", status=0)
        until_step(run, at)
        inflict(kind, node)
        began = time.monotonic()
        if kind != "kill":  # which is over before anybody could look
            until(lambda: down(others), 60)
        gone = time.monotonic() - began
        if kind == "disk":
            until_state("failed", run, NODES)
            cause = record("tower", run)["cause"]
            assert cause["node"] == node
            assert "is full; the last good checkpoint is step-" in cause["message"]
        mend(kind, node)
        mended = time.monotonic()
        if kind == "disk":
            again = ("-e", f"resume={run}", "-e", "wait=false")
            home.play("train.yml", *READY, *again)
        until(lambda: record("tower", run)["generation"] == 1)
        until(lambda: ranks("tower"))
        back = time.monotonic() - mended
        until_state("finished", run, NODES)
        assert steps(run) == list(range(1, STEPS + 1))
        assert {learned(name, run) for name in NODES} == {undisturbed}
        for name in NODES:
            until(lambda name=name: units(name) == "")
        write_down(kind=kind, node=node, step=at, seconds_until_down=gone, seconds_until_back=back)
    finally:
        mend_for_others(kind, node)
        end(NODES, [run])
        if kind == "disk":
            as_root(node, f"umount {CHECKPOINTS}")


@pytest.mark.rotated
def test_elastic_goes_on_without_a_machine_and_takes_it_in_again(home, tmp_path):
    run = "elastic"
    # Large steps of so small a model make much of a rounding; no step must know which is the last.
    settings = SETTINGS | {"learning_rate": 1e-4, "schedule": "constant", "precision": "fp32"}
    start(home, run, "-e", "elastic=true", **settings | {"max_steps": 100_000})
    try:
        until_step(run, 12)
        lab("cut", "laptop")
        began = time.monotonic()
        until(lambda: learns(run, 1))
        gone_on = time.monotonic() - began
        assert record("tower", run)["missing"] == []
        assert "going on without laptop" in at_home("tower", f"cat ai-cluster/logs/{run}.log")
        lab("join", "laptop")
        began = time.monotonic()
        until(lambda: learns(run, 2))
        taken_in = time.monotonic() - began
        until_state("running", run, NODES)
        on("tower", f"systemctl --user stop hearth-{run}.service", 90)
        until_state("stopped", run, NODES)
        told = steps(run)
        assert told == list(range(1, told[-1] + 1))
        kept = f"ai-cluster/checkpoints/{run}/step-{told[-1]:08d}/adapter/adapter_model.safetensors"
        assert len({checksum(name, kept) for name in NODES}) == 1

        same = {"model": str(home.model), "dataset": str(home.data), **TINY, **settings}
        same |= {"max_steps": told[-1], "micro_batch": settings["global_batch"], "evaluate": False}
        begun = beginning(same)
        undisturbed = change(trained(tmp_path, "undisturbed", 1, *arguments_of(same)), begun)
        found = change(load(base64.b64decode(at_home("tower", f"base64 {kept}"))), begun)
        assert apart(found, undisturbed) < 1e-3
        write_down(
            kind="elastic",
            seconds_until_on=gone_on,
            seconds_until_in=taken_in,
            apart=apart(found, undisturbed),
        )
    finally:
        mend_for_others("cable", "laptop")
        end(NODES, [run])


def learns(run: str, generation: int) -> bool:
    """Tell whether a step was taken in the launch of this generation, or in a later one."""
    lines = at_home("tower", f"cat ai-cluster/results/{run}/metrics.jsonl").splitlines()
    kinds = [(line["kind"], line.get("generation", 0)) for line in map(json.loads, lines)]
    begun = [at for at, (kind, its) in enumerate(kinds) if kind == "start" and its >= generation]
    return bool(begun) and ("step", 0) in kinds[begun[0] :]


def mend_for_others(kind: str, node: str) -> None:
    """Leave the machines as they were, also where the test broke off in the middle."""
    lab("join", node, status=None)
    lab("power-on", node, status=None)
    if kind == "disk":
        inside(node, f"rm -f {FULL}")
