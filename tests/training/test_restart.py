"""Runs that lose a rank, a node or all of them, and go on: real supervisors, torchrun, training."""

from __future__ import annotations

import shutil
import sys

import psutil
import pytest
import torch
from safetensors.torch import load_file
from support.facts import assert_names
from support.ranks import figures, furthest
from support.supervisors import TRAINING, Nodes
from support.waiting import until

from hearth.config import resolve_run

STEPS = 150


@pytest.fixture
def house(tmp_path, tiny_model, tiny_data, nodes):
    """Two nodes with the real training code, model and data."""

    def make(name: str = "house", **settings: int) -> Nodes:
        given = {
            "model": str(tiny_model), "dataset": str(tiny_data), "run": "first",
            "sequence_length": 96, "packing": True, "epochs": 1, "lora_rank": 4,
            "global_batch": 4, "split": "equal",
            "micro_batch": 1, "wandb": "off",
            "eval_held_out": False, "max_steps": STEPS, **settings,
        }  # fmt: skip
        run = resolve_run(given, tmp_path / "runs")
        folder = tmp_path / name
        folder.mkdir()
        two = nodes(2, "", folder, python=sys.executable)
        two.stage_trainer(run, tiny_data)
        return two

    return make


def of_kind(nodes: Nodes, kind: str, name: str = "step", node: str = "node0") -> list:
    return figures(nodes.workspace(node) / "results/first", kind, name)


def adapter(nodes: Nodes, node: str = "node0") -> dict[str, torch.Tensor]:
    return load_file(nodes.workspace(node) / "results/first/adapter/adapter_model.safetensors")


def steps(nodes: Nodes, node: str = "node0") -> list[int]:
    return of_kind(nodes, "step", node=node)


def lose_power(nodes: Nodes, *names: str) -> None:
    """Leave no time for a message: the supervisors stand still before any of them dies."""
    dying = [psutil.Process(nodes.supervisor(node).pid) for node in names]
    dying += [process for node in names for process in nodes.processes(node)]
    for process in dying:
        process.suspend()
    for process in dying:
        process.kill()
    for node in names:
        nodes.supervisor(node).wait(10)
        assert nodes.record(node)["state"] == "running"


def finish_without_a_rank(nodes: Nodes, step: int) -> None:
    """Train, kill a rank once this step is on record, and have all finish in a second launch."""
    for node in nodes.names:
        nodes.change(node, return_timeout=60)
    nodes.start()
    until(lambda: step in steps(nodes))
    nodes.rank("node1").kill()
    for record in nodes.wait().values():
        (lost,) = record["launches"]
        assert (record["state"], record["generation"] > lost["generation"]) == ("finished", True)
        assert_names(lost["cause"]["message"], "rank 1", "signal 9")


@pytest.mark.rotated
@pytest.mark.slow
def test_neither_a_killed_rank_nor_a_lost_disk_leaves_a_trace_in_what_was_learned(house):
    killed = house("killed", checkpoint_every=5)
    finish_without_a_rank(killed, 12)
    assert steps(killed) == steps(killed, "node1") == list(range(1, STEPS + 1))
    first, second = of_kind(killed, "start", "generation")
    assert first < second

    bare = house("bare", checkpoint_every=5)
    bare.start()
    until(lambda: 12 in steps(bare))
    lose_power(bare, *bare.names)
    disk = bare.workspace("node0")
    run_file = (disk / "results/first/run.yml").read_text()
    shutil.rmtree(disk / "results")
    shutil.rmtree(disk / "checkpoints")
    (disk / "results/first").mkdir(parents=True)
    (disk / "results/first/run.yml").write_text(run_file)
    bare.start()
    assert {record["state"] for record in bare.wait().values()} == {"finished"}
    assert steps(bare) == list(range(1, STEPS + 1))
    assert min(of_kind(bare, "start")) == 0
    assert furthest(adapter(bare), adapter(killed)) == 0


@pytest.mark.rotated
@pytest.mark.slow
def test_a_rank_that_is_killed_in_a_round_of_local_steps_leaves_no_trace(house):
    rounds = {"sync_every": 20, "checkpoint_every": 20, "max_steps": 160}
    whole, killed = house("whole", **rounds), house("killed", **rounds)
    whole.start()
    assert {record["state"] for record in whole.wait().values()} == {"finished"}
    finish_without_a_rank(killed, 20)
    assert steps(killed) == [*range(20, 161, 20)]
    assert furthest(adapter(killed), adapter(whole)) == 0


@pytest.mark.rotated
@pytest.mark.slow
def test_a_lost_stage_of_a_pipeline_ends_all_and_leaves_no_trace_when_it_is_back(house):
    stages = {"parallel": "pipeline", "checkpoint_every": 5, "max_steps": 60}
    whole, lost = house("whole", **stages), house("lost", **stages)
    whole.start()
    assert {record["state"] for record in whole.wait().values()} == {"finished"}
    for node in lost.names:
        lost.change(node, return_timeout=60)
    lost.start()
    until(lambda: 12 in steps(lost))
    lose_power(lost, "node1")
    assert lost.until_down("node0") < 60
    lost.start("node1")
    for record in lost.wait().values():
        (loss,) = record["launches"]
        assert (record["state"], loss["cause"]["node"]) == ("finished", "node1")
    assert steps(lost) == steps(lost, "node1") == list(range(1, 61))
    begun, again = of_kind(lost, "start")
    assert begun == 0
    assert again in range(10, 60, 5)
    for node in lost.names:  # the whole adapter on each
        assert furthest(adapter(lost, node), adapter(whole)) == 0


@pytest.mark.rotated
@pytest.mark.slow
def test_a_rank_of_a_pipeline_that_hangs_is_named_and_started_again(house, tmp_path):
    nodes = house("hangs", parallel="pipeline", checkpoint_every=5, max_steps=60)
    for node in nodes.names:
        nodes.change(node, return_timeout=60)
    sooner = "from hearth.supervisor import hang\nhang.SILENT = 15.0\n"
    (tmp_path / "sitecustomize.py").write_text(sooner)
    nodes.variables["PYTHONPATH"] = f"{tmp_path}:{TRAINING}"
    nodes.start()
    until(lambda: 12 in steps(nodes))
    nodes.rank("node1").suspend()
    for record in nodes.wait().values():
        assert record["state"] == "finished"
        (loss, *_) = record["launches"]
        assert_names(loss["cause"]["message"], "rank 1 of node1 did nothing for", "it hangs")
    assert steps(nodes) == list(range(1, 61))


@pytest.mark.rotated
@pytest.mark.slow
def test_a_run_that_has_ended_is_not_begun_anew_and_another_launch_ends_at_once_and_well(house):
    nodes = house(max_steps=4)
    nodes.start()
    before = nodes.wait()
    nodes.start()
    assert nodes.wait() == before
    learned, told = adapter(nodes), steps(nodes)
    for node in nodes.names:
        nodes.change(node, generation=before[node]["generation"] + 1)
    nodes.start()
    for node, record in nodes.wait().items():
        assert record["state"] == "finished"
        assert record["generation"] > before[node]["generation"]
    assert steps(nodes) == steps(nodes, "node1") == told
    assert of_kind(nodes, "end", "state") == ["finished"]
    assert furthest(adapter(nodes), learned) == 0


@pytest.mark.rotated
def test_a_node_that_comes_back_alone_ends_with_the_truth(house):
    nodes = house(max_steps=100000)
    for node in nodes.names:
        nodes.change(node, ready_timeout=5)
    nodes.start()
    until(lambda: 3 in steps(nodes))
    nodes.supervisor("node1").kill()
    assert nodes.wait("node0")["node0"]["cause"]["node"] == "node1"
    nodes.start("node1")
    cause = nodes.wait("node1")["node1"]["cause"]
    assert (cause["node"], cause["kind"]) == ("node1", "node_lost")
    assert_names(cause["message"], "node1 went down", "node0")
