"""`launch_cluster.sh` in the workspaces of two nodes on this computer."""

from __future__ import annotations

import json
import subprocess

import pytest
from support.house import NODES, TINY, ended
from support.lines import assert_line
from support.waiting import until

pytestmark = pytest.mark.cluster


@pytest.mark.rotated(seconds=40)
def test_a_run_that_was_stopped_goes_on_by_hand_to_its_end(house):
    house.play("provision.yml", "--tags", "workspace")
    house.play("train.yml", *house.tiny(run="evening", max_steps=80), "-e", "wait=off")
    house.until_step("evening")
    here = house.workspace("desk") / "results" / "evening"
    (here / "stop").write_text("stop\n")
    until(lambda: all(house.record(node, "evening")["state"] == "stopped" for node in NODES))
    until(lambda: not house.processes())
    stopped_at = json.loads((here / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert 0 < stopped_at < 80

    both = [
        subprocess.Popen(
            [house.workspace(node) / "launch_cluster.sh", str(rank), "--run", "evening"],
            env=house.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, node in enumerate(NODES)
    ]
    screen, _ = map(ended, both)
    assert "step 80" in screen
    assert_line(screen, "on laptop (127.0.0.2): ./launch_cluster.sh 1 --run evening")
    house.play("playbooks/attach.yml", "-e", "run=evening")
    metrics = house.metrics("evening")
    assert [line["step"] for line in metrics if line["kind"] == "step"] == list(range(1, 81))
    assert (metrics[-1]["kind"], metrics[-1]["state"]) == ("end", "finished")
    assert (house.runs / "evening" / "adapter" / "adapter_config.json").exists()
    for node in NODES:
        assert house.record(node, "evening")["state"] == "finished"
        assert [path.name for path in (house.workspace(node) / "logs").iterdir()] == ["evening.log"]


@pytest.mark.rotated(seconds=60)
def test_a_run_of_its_own_begins_by_hand_after_provisioning(house):
    house.play("provision.yml", "--tags", "workspace")
    words = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, value in TINY.items()
    ]
    words += ["--model", str(house.model), "--dataset", str(house.data), "--max-steps", "4"]
    both = [
        subprocess.Popen(
            [house.workspace(node) / "launch_cluster.sh", str(rank), *words],
            env=house.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, node in enumerate(NODES)
    ]
    screen, _ = map(ended, both)
    assert "step 4/4" in screen
    (adapter,) = house.workspace("desk").glob("results/*/adapter")
    assert (adapter / "adapter_config.json").exists()
