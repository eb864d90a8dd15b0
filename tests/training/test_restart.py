"""A run whose processes all died at once, as in a power cut, started again as it was."""

from __future__ import annotations

import json
import shutil
import sys

import psutil
import pytest
from support.supervisors import TRAINING, Nodes, until

from hearth.config import resolve_run, write_run
from hearth.layout import staged_name

STEPS = 60


@pytest.fixture
def house(tmp_path, tiny_model, tiny_data):
    """Two nodes with the real training code, model and data; end all that they started."""
    made: list[Nodes] = []

    def make(**settings: int) -> Nodes:
        given = {
            "model": str(tiny_model), "dataset": str(tiny_data), "run": "first",
            "sequence_length": 96, "lora_rank": 4, "global_batch": 4, "split": "equal",
            "micro_batch": 1, "wandb": "off",
            "evaluate": False, "max_steps": STEPS, **settings,
        }  # fmt: skip
        run = resolve_run(given, tmp_path / "runs")
        nodes = Nodes(tmp_path, 2, "", python=sys.executable)
        made.append(nodes)
        for node in nodes.names:
            nodes.change(node, script="scripts/train_distributed.py")
            workspace = nodes.workspace(node)
            skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(TRAINING, workspace / "scripts", dirs_exist_ok=True, ignore=skip)
            (workspace / "data").mkdir()
            assert run.dataset_sha256
            staged = workspace / "data" / staged_name(run.dataset_sha256, str(tiny_data))
            shutil.copy(tiny_data, staged)
            write_run(run, workspace / "results/first/run.yml")
        return nodes

    yield make
    for nodes in made:
        nodes.close()


def metrics(nodes: Nodes) -> list[dict]:
    lines = (nodes.workspace("node0") / "results/first/metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def kill_everything(nodes: Nodes) -> None:
    """Leave nobody the time to say a word: the supervisors stand still before any of them dies."""
    dying = [psutil.Process(nodes.supervisor(node).pid) for node in nodes.names]
    dying += [process for node in nodes.names for process in nodes.processes(node)]
    for process in dying:
        process.suspend()
    for process in dying:
        process.kill()
    for node in nodes.names:
        nodes.supervisor(node).wait(10)
        assert nodes.record(node)["state"] == "running"


@pytest.mark.slow
def test_a_run_that_died_on_all_nodes_goes_on_from_its_last_checkpoint(house):
    nodes = house(checkpoint_every=5)
    nodes.start()
    until(lambda: any(line.get("step") == 12 for line in metrics(nodes)), 60)
    kill_everything(nodes)
    nodes.start()
    assert {record["state"] for record in nodes.wait(seconds=90).values()} == {"finished"}
    told = metrics(nodes)
    assert [line["step"] for line in told if line["kind"] == "step"] == list(range(1, STEPS + 1))
    begun = [line["step"] for line in told if line["kind"] == "start"][-1]
    assert begun >= 10
    assert nodes.log("node0").count("starting torchrun") == 2


def test_a_supervisor_whose_run_has_ended_has_nothing_to_do(house):
    nodes = house(max_steps=2)
    nodes.start()
    before = nodes.wait(seconds=90)
    nodes.start()
    assert nodes.wait(seconds=10) == before


def test_a_node_that_comes_back_alone_ends_with_the_truth(house):
    nodes = house(max_steps=100000)
    for node in nodes.names:
        nodes.change(node, ready_timeout=5)
    nodes.start()
    until(lambda: any(line.get("step") == 3 for line in metrics(nodes)), 60)
    nodes.supervisor("node1").kill()
    assert nodes.wait("node0")["node0"]["cause"]["node"] == "node1"
    nodes.start("node1")
    cause = nodes.wait("node1", seconds=30)["node1"]["cause"]
    assert (cause["node"], cause["kind"]) == ("node1", "node_lost")
    assert "node1 went down in the middle of the run" in cause["message"]
    assert "node0 did not answer" in cause["message"]
