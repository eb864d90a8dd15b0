"""Runs whose ranks form new groups in place: real supervisors, torchrun and training."""

from __future__ import annotations

import sys

import pytest
from support.ranks import figures
from support.teams import Team
from support.waiting import until

from hearth.config import resolve_run

STEPS = 100_000


@pytest.fixture
def house(tmp_path, tiny_model, tiny_data, team):
    """Three nodes in place with the real training code, model and data."""

    def make(count: int = 3, **settings: int) -> Team:
        given = {
            "model": str(tiny_model), "dataset": str(tiny_data), "run": "first",
            "sequence_length": 96, "packing": True, "epochs": 1, "lora_rank": 4,
            "global_batch": 6, "split": "equal",
            "micro_batch": 1, "wandb": "off",
            "eval_held_out": False, "max_steps": STEPS, **settings,
        }  # fmt: skip
        run = resolve_run(given, tmp_path / "runs")
        nodes = team(count, python=sys.executable)
        nodes.stage_trainer(run, tiny_data)
        return nodes

    return make


def taken(nodes: Team, node: str) -> list[int]:
    return figures(nodes.results(node), "step", "step")


@pytest.mark.rotated
@pytest.mark.slow
def test_a_killed_rank_and_a_killed_supervisor_cost_no_step(house):
    nodes = house()
    nodes.start()
    until(lambda: 5 in taken(nodes, "node1"))
    nodes.rank("node2").kill()
    until(lambda: len(nodes.record("node0")["launches"]) == 2)  # without it, and with it again
    joined = taken(nodes, "node1")[-1]
    until(lambda: joined + 2 in taken(nodes, "node2"))
    nodes.kill("node0")
    until(lambda: len(nodes.record("node1")["launches"]) == 3)
    nodes.start("node0")
    until(lambda: len(nodes.record("node1")["launches"]) == 4)
    last = taken(nodes, "node2")[-1]
    until(lambda: last + 3 in taken(nodes, "node0"))
    nodes.stop("node2")
    for record in nodes.wait().values():
        assert (record["state"], record["cause"]["kind"]) == ("stopped", "stopped")
    kinds = [each["cause"]["kind"] for each in nodes.record("node1")["launches"]]
    assert kinds == ["rank_failed", "node_back", "node_lost", "node_back"]
    steps = taken(nodes, "node0")
    assert steps == list(range(1, steps[-1] + 1))
    assert steps[-1] > last
    assert taken(nodes, "node1") == taken(nodes, "node2") == steps
