"""A run on top of another through `train.yml`, over two nodes on this computer."""

from __future__ import annotations

import pytest
import yaml
from support.facts import assert_line
from support.local_cluster import LocalCluster
from support.preferences import write_pairs

from hearth.base.files import sha256_of

pytestmark = [pytest.mark.cluster, pytest.mark.rotated]


def test_the_adapter_of_a_finished_run_comes_to_a_node_that_lacks_it(local: LocalCluster):
    local.play("train.yml", *local.tiny(run="first", max_steps=3), "-e", "nodes=desk")
    assert not (local.workspace("laptop") / "results" / "first").exists()
    more = ["-e", "onto=first", "-e", "run=second", "-e", "max_steps=2", "-e", "nodes=all"]
    more += ["-e", f"dataset={local.data}", "-e", "wandb=off", "-e", "learning_rate=0.001"]
    assert_line(local.play("train.yml", *more), "on top of first", "3 steps")
    record = yaml.safe_load((local.runs / "second" / "run.yml").read_text())
    sha256 = sha256_of(local.runs / "first" / "adapter" / "adapter_model.safetensors")
    assert record["start"]["sha256"] == sha256
    for node in ("desk", "laptop"):
        (staged,) = (local.workspace(node) / "data").glob("*-adapter_model.safetensors")
        assert sha256_of(staged) == sha256
    before, after = (
        [each["loss"] for each in local.metrics(run) if each["kind"] == "evaluate"][place]
        for run, place in (("second", 0), ("first", -1))
    )
    assert before == pytest.approx(after, rel=1e-4)
    (local.runs / "first" / "adapter" / "adapter_model.safetensors").write_bytes(b"cut")
    screen = local.play("train.yml", *more, "-e", "run=third", status=2)
    assert_line(screen, "onto:", "damaged")


def test_preferences_are_learned_on_top_over_both_nodes(local: LocalCluster):
    local.play("train.yml", *local.tiny(run="taught", max_steps=3))
    data = write_pairs(local.folder / "pairs.jsonl")
    more = ["-e", "onto=taught", "-e", "run=better", "-e", "objective=dpo", "-e", "nodes=all"]
    more += ["-e", f"dataset={data}", "-e", "max_steps=3", "-e", "wandb=off"]
    screen = local.play("train.yml", *more)
    assert_line(screen, "data:", "pairs", "held out")
    assert_line(screen, "held-out preferences", "judged rightly")
    accuracies = [
        each["reward_accuracy"] for each in local.metrics("better") if each["kind"] == "evaluate"
    ]
    assert len(accuracies) == 2
    report = (local.runs / "better" / "report.html").read_text()
    assert "held-out preferences judged rightly" in report
    assert "base model" in report
    wrong = ["-e", f"dataset={local.data}", "-e", "run=other"]
    screen = local.play("train.yml", *more, *wrong, status=2)
    assert_line(screen, "objective=dpo")
