"""Three machines of the lab whose user has one home, as over NFS, from provision to reset.

The tests tell one story, so they run in order.
"""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.facts import assert_line, assert_names
from support.lab import (
    PYTHON,
    READY,
    Controller,
    as_user,
    at_home,
    bring,
    inventory,
    lab,
    machines,
    on,
)
from support.metric_lines import records_in
from support.ranks import SCRIPT, arguments_of
from support.stand_in_lock import index_of_the_lock, stage_settings
from support.supervisors import TRAINING
from support.waiting import until

from hearth_lab import plan

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.rotated("one home for all machines")]

NODES = ("tower", "laptop", "oldbox")
NIGHT = "ai-cluster/laptop/results/night/metrics.jsonl"


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data) -> Iterator[Controller]:
    folder = tmp_path_factory.mktemp("home")
    # Not below /tmp, which a machine forgets when it boots.
    kept = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="hearth-test-"))
    try:
        there = Path(shutil.copytree(tiny_model, kept / "tiny"))
        hosts = {each.name: {"cluster_address": each.address} for each in plan.nodes(3)}
        controller = Controller(folder, there, tiny_data, inventory(folder / "inventory", hosts))
        with machines(3, "--slurm", "--shared-home"):
            for each in (there, TRAINING, tiny_data.parent):
                bring(each, NODES)
            yield controller
    finally:
        shutil.rmtree(kept)


def record_of(path: str) -> list[dict]:
    """Return the lines of a run's record, as the home has it."""
    return records_in(as_user("laptop", f"cat {path} 2>/dev/null || true"))


def steps(path: str) -> list[int]:
    return [line["step"] for line in record_of(path) if line["kind"] == "step"]


def team() -> list[str]:
    """Return the nodes that take part in the run `night` now."""
    changes = [line["nodes"] for line in record_of(NIGHT) if line["kind"] == "team"]
    return changes[-1] if changes else [*NODES]


def test_provisioning_recognises_the_home_and_gives_each_node_a_place_of_its_own(home):
    stages = ("--tags", "ssh,workspace")
    screen = home.play("provision.yml", *READY, *stages)
    assert_names(screen, "tower, laptop, oldbox share a home", "shared_home.yml")
    again = home.play("provision.yml", *READY, *stages)
    assert_names(again, *(f"{node} changed=0" for node in NODES))
    for node in NODES:
        as_user("tower", f"test -d ai-cluster/{node}/scripts/hearth")


def test_each_node_gets_a_python_environment_of_its_own(home, tmp_path):
    """All receive the packages at once, into the one home."""
    with index_of_the_lock() as index:
        settings = json.dumps(stage_settings(tmp_path, index))
        pip = index.variables(tmp_path / "pip")
        screen = home.play("playbooks/provision/python.yml", "-e", settings, **pip)
    assert_line(screen, "laptop, oldbox, tower", "2 packages installed")
    for node in NODES:
        python = f".local/share/hearth/{node}/venv/bin/python"
        as_user("laptop", f'{python} -c "import alpha, beta"')
    assert as_user("laptop", "ls -A .cache/hearth 2>/dev/null || true") == ""


def test_a_run_goes_on_without_its_first_node_which_comes_back_by_itself(home):
    typed = home.tiny(eval_held_out=False, max_steps=100_000, checkpoint_every=5)
    home.play("train.yml", *READY, "-e", "run=night", "-e", "wait=off", *typed)
    until(lambda: len(steps(NIGHT)) > 6)
    lab("power-off", "tower")
    until(lambda: team() == ["laptop", "oldbox"])
    lab("power-on", "tower")
    until(lambda: team() == [*NODES])
    states = {
        node: at_home("tower", f"systemctl --user is-active hearth-night@{node}.service")
        for node in NODES
    }
    assert states == {"tower": "active", "laptop": "inactive", "oldbox": "inactive"}


def test_the_other_commands_find_the_run_and_it_is_resumed(home):
    for verb in ("status", "runs"):
        assert_names(home.play(f"playbooks/{verb}.yml", *READY), "night")
    home.play("playbooks/stop.yml", *READY, "-e", "run=night")
    reached = steps(NIGHT)
    assert reached == [*range(1, len(reached) + 1)]
    more = ("-e", f"max_steps={len(reached) + 5}")
    home.play("playbooks/resume.yml", *READY, "-e", "run=night", *more)
    assert steps(NIGHT) == [*range(1, len(reached) + 6)]
    for node in NODES:
        as_user("tower", f"test -d ai-cluster/{node}/checkpoints/night")
    assert as_user("tower", "find .config/systemd -name 'hearth-*'") == ""
    copies = as_user("tower", "find ai-cluster -path '*/data/*.jsonl' -type f")
    assert copies.startswith("ai-cluster/data/")
    assert len(copies.split()) == 1


def test_a_job_of_slurm_trains_there(home):
    typed = home.tiny(eval_held_out=False, max_steps=4)
    screen = home.play("train.yml", *READY, "-e", "run=job", "-e", "launcher=slurm", *typed)
    assert_names(screen, "job finished", "4 of 4 steps")


def test_ranks_under_plain_srun_keep_one_run_that_is_resumed_without_its_writer(home):
    settings = {"model": home.model, "dataset": home.data, "max_steps": 6, "split": "equal"}
    few = {"micro_batch": 1, "global_batch": 6, "sequence_length": 32, "checkpoint_every": 1}
    typed = [*arguments_of(settings | few), "--run", "one"]
    bring(TRAINING, NODES)  # a machine forgets /tmp when it boots
    bring(home.data.parent, NODES)
    shell = "cd && export HF_HUB_OFFLINE=1 && "
    record = "runs/one/metrics.jsonl"
    words = shlex.join(map(str, [PYTHON, SCRIPT, *typed]))
    assert_names(on("tower", f"{shell} srun -K -N3 {words} 2>&1"), "step 6/6", "finished")
    assert steps(record) == [*range(1, 7)]
    words = shlex.join(map(str, [PYTHON, SCRIPT, "--resume", "one", "--max-steps", 9]))
    screen = on("tower", f"{shell} srun -K -N2 -w tower,oldbox {words} 2>&1")
    assert_names(screen, "step 9/9", "finished")
    assert steps(record) == [*range(1, 10)]


def test_a_node_that_leaves_takes_neither_the_files_nor_the_logins_of_the_others(home):
    environments = [f".local/share/hearth/{node}/venv" for node in NODES]
    as_user("tower", f"mkdir -p {' '.join(environments)}")
    words = ("-e", "nodes=tower", "-e", "yes=on", "-e", "remove=environment,workspace")
    home.play("playbooks/reset.yml", *READY, *words)
    left = as_user("laptop", "ls .local/share/hearth; ls -A ai-cluster").split()
    assert {"laptop", "oldbox"} <= {*left}
    assert not {"tower", ".hearth-node-tower"} & {*left}
    home.play("playbooks/status.yml", *READY, "-e", json.dumps({"ansible_password": "wrong"}))
