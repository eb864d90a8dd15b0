"""`launch_cluster.sh` in the workspaces of two nodes on this computer."""

from __future__ import annotations

import json
import subprocess

import pytest
from support.facts import assert_line
from support.local_cluster import NODES, TINY, ended
from support.waiting import until

pytestmark = pytest.mark.cluster


@pytest.mark.rotated
def test_a_run_that_was_stopped_goes_on_by_hand_to_its_end(local):
    local.play("provision.yml", "--tags", "workspace")
    local.play("train.yml", *local.tiny(run="evening", max_steps=80), "-e", "wait=off")
    local.until_step("evening")
    here = local.workspace("desk") / "results" / "evening"
    (here / "stop").write_text("stop\n")
    until(lambda: all(local.record(node, "evening")["state"] == "stopped" for node in NODES))
    until(lambda: not local.processes())
    stopped_at = json.loads((here / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert 0 < stopped_at < 80

    both = [
        subprocess.Popen(
            [local.workspace(node) / "launch_cluster.sh", str(rank), "--run", "evening"],
            env=local.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, node in enumerate(NODES)
    ]
    screen, _ = map(ended, both)
    assert "step 80" in screen
    assert_line(screen, "on laptop (127.0.0.2): ./launch_cluster.sh 1 --run evening")
    local.play("playbooks/attach.yml", "-e", "run=evening")
    metrics = local.metrics("evening")
    assert [line["step"] for line in metrics if line["kind"] == "step"] == list(range(1, 81))
    assert (metrics[-1]["kind"], metrics[-1]["state"]) == ("end", "finished")
    assert (local.runs / "evening" / "adapter" / "adapter_config.json").exists()
    for node in NODES:
        assert local.record(node, "evening")["state"] == "finished"
        assert [path.name for path in (local.workspace(node) / "logs").iterdir()] == ["evening.log"]


@pytest.mark.rotated
def test_a_run_of_its_own_begins_by_hand_after_provisioning(local):
    local.play("provision.yml", "--tags", "workspace")
    words = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, value in TINY.items()
    ]
    words += ["--model", str(local.model), "--dataset", str(local.data), "--max-steps", "4"]
    both = [
        subprocess.Popen(
            [local.workspace(node) / "launch_cluster.sh", str(rank), *words],
            env=local.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, node in enumerate(NODES)
    ]
    screen, _ = map(ended, both)
    assert "step 4/4" in screen
    (adapter,) = local.workspace("desk").glob("results/*/adapter")
    assert (adapter / "adapter_config.json").exists()
