"""Three machines of the lab whose user has one home, as over NFS: train.yml, and plain srun."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.facts import assert_names
from support.lab import (
    PYTHON,
    READY,
    Controller,
    as_user,
    bring,
    inventory,
    lab,
    machines,
    on,
)
from support.ranks import SCRIPT, arguments_of
from support.supervisors import TRAINING
from support.waiting import until

from hearth.record.history import records_in
from hearth_lab import plan

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.rotated("one home for all machines")]

NODES = ("tower", "laptop", "oldbox")
OWN = "~/ai-cluster/{{ inventory_hostname }}"


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data) -> Iterator[Controller]:
    folder = tmp_path_factory.mktemp("home")
    there = Path(shutil.copytree(tiny_model, folder / "kept" / "tiny"))
    hosts = {each.name: {"cluster_address": each.address} for each in plan.nodes(3)}
    house = Controller(folder, there, tiny_data, inventory(folder / "inventory", hosts))
    with machines(3, "--slurm", "--shared-home"):
        bring_all(house)
        house.play("playbooks/preflight.yml", *READY)
        yield house


def bring_all(house: Controller) -> None:
    """Put the code, the model and the data on the machines."""
    for each in (house.model, TRAINING, house.data.parent):
        bring(each, NODES)


def steps(record: str) -> list[int]:
    """Return the steps in a run's record, as the home has it."""
    said = as_user("laptop", f"cat {record} 2>/dev/null || true")
    return [line["step"] for _, line in records_in(said) if line["kind"] == "step"]


def test_one_workspace_for_all_is_refused_with_what_to_set(home):
    screen = home.play("playbooks/workspace.yml", *READY, status=2)
    assert_names(screen, "share a home", "hearth_workspace", "inventory_hostname")


def test_a_run_goes_on_without_the_first_node_and_is_resumed_with_it(home):
    own = ("-e", json.dumps({"hearth_workspace": OWN}))
    home.play("playbooks/workspace.yml", *READY, *own)
    typed = home.tiny(eval_held_out=False, max_steps=100_000, checkpoint_every=5)
    home.play("train.yml", *READY, *own, "-e", "run=night", "-e", "wait=off", *typed)
    record = "ai-cluster/laptop/results/night/metrics.jsonl"
    until(lambda: len(steps(record)) > 6)
    lab("power-off", "tower")
    lost = len(steps(record))
    until(lambda: len(steps(record)) > lost + 20)
    lab("power-on", "tower")
    bring_all(home)  # a machine forgets /tmp when it boots
    home.play("playbooks/stop.yml", *READY, *own, "-e", "run=night")
    reached = steps(record)
    assert reached == [*range(1, len(reached) + 1)]
    more = ("-e", f"max_steps={len(reached) + 5}")
    home.play("train.yml", *READY, *own, "-e", "resume=night", *more)
    assert steps(record) == [*range(1, len(reached) + 6)]
    for node in NODES:  # nothing is written outside of a node's own folder
        as_user("tower", f"test -d ai-cluster/{node}/checkpoints/night")


def test_ranks_under_plain_srun_keep_one_run_that_is_resumed_without_its_writer(home):
    settings = {"model": home.model, "dataset": home.data, "max_steps": 6, "split": "equal"}
    few = {"micro_batch": 1, "global_batch": 6, "sequence_length": 32, "checkpoint_every": 1}
    typed = [*arguments_of(settings | few), "--run", "one"]
    shell = "cd && export HF_HUB_OFFLINE=1 && "
    record = "runs/one/metrics.jsonl"
    words = shlex.join(map(str, [PYTHON, SCRIPT, *typed]))
    assert_names(on("tower", f"{shell} srun -K -N3 {words} 2>&1"), "step 6/6", "finished")
    assert steps(record) == [*range(1, 7)]
    words = shlex.join(map(str, [PYTHON, SCRIPT, "--resume", "one", "--max-steps", 9]))
    screen = on("tower", f"{shell} srun -K -N2 -w tower,oldbox {words} 2>&1")
    assert_names(screen, "step 9/9", "finished")
    assert steps(record) == [*range(1, 10)]
