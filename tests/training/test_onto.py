"""A run that goes on training the adapter of an earlier one."""

from __future__ import annotations

import math
import shutil

import pytest
from support.preferences import write_pairs
from support.ranks import (
    figures,
    furthest,
    learned,
    metrics,
    refused,
    stopped,
    succeeded,
    train_forked,
    trained,
)
from support.tiny_model import make_model

from hearth.config import read_run

MORE = ("--epochs", 2, "--learning-rate", 0.005, "--precision", "fp64")


@pytest.fixture(scope="module")
def common(tiny_data):
    """Return the arguments of a run on top of another: model and adapter are that one's."""
    return [
        *("--dataset", tiny_data, "--sequence-length", 96, "--global-batch", 7, "--packing"),
        *("--warmup-steps", 2, "--split", "equal", "--micro-batch", 1, "--wandb", "off", *MORE),
    ]


@pytest.fixture(scope="module")
def first(tmp_path_factory, arguments):
    """Return a folder with the finished run `first`."""
    cwd = tmp_path_factory.mktemp("first")
    trained(cwd, "first", 1, *arguments, "--eval-held-out", "on", "--precision", "fp64")
    return cwd


@pytest.fixture(scope="module")
def second(first, common):
    """Return the adapter of the run `second`, on top of `first`."""
    return trained(first, "second", 1, *common, "--onto", "first")


def losses(cwd, run):
    return {each["when"]: each["loss"] for each in metrics(cwd / "runs" / run, "evaluate")}


def test_it_begins_where_the_other_ended_and_goes_on(first, second):
    assert losses(first, "second")["before"] == pytest.approx(
        losses(first, "first")["after"], abs=1e-6
    )
    assert losses(first, "second")["after"] < losses(first, "second")["before"]
    assert furthest(second, learned(first, "first")) > 0


def test_two_ranks_give_what_one_gives(first, second, common, tmp_path):
    shutil.copytree(first / "runs" / "first", tmp_path / "runs" / "first")
    found = trained(tmp_path, "second", 2, *common, "--onto", "first")
    assert furthest(found, second) < 1e-9


def test_its_record_says_what_it_began_with(first, second, common):
    run, before = (read_run(first / "runs" / name / "run.yml") for name in ("second", "first"))
    assert run.settings.onto == "first"
    assert run.settings.model == before.settings.model
    assert run.settings.lora_rank == before.settings.lora_rank
    assert [each.run for each in run.start.lineage] == ["first"]
    trained(first, "third", 1, *common, "--onto", "second", "--max-steps", 1)
    third = read_run(first / "runs" / "third" / "run.yml")
    assert [each.run for each in third.start.lineage] == ["second", "first"]
    assert third.start.lineage[0].step == figures(first / "runs" / "second", "end", "step")[-1]


def test_a_stopped_one_goes_on_from_its_checkpoint_without_the_first(
    first, second, common, tmp_path
):
    shutil.copytree(first / "runs" / "first", tmp_path / "runs" / "first")
    stopped(tmp_path, "second", 1, *common, "--onto", "first", "--checkpoint-every", 1)
    shutil.rmtree(tmp_path / "runs" / "first")
    succeeded(train_forked(tmp_path, 1, "--resume", "second"))
    assert furthest(learned(tmp_path, "second"), second) < 1e-12


def test_a_folder_with_an_adapter_of_another_program_does_as_well(first, second, common, tmp_path):
    adapter = shutil.copytree(first / "runs" / "first" / "adapter", tmp_path / "theirs")
    found = trained(tmp_path, "second", 1, *common, "--onto", adapter)
    assert furthest(found, second) == 0


@pytest.mark.rotated
@pytest.mark.parametrize("parallel", ["fsdp", "pipeline"])
def test_sharded_and_divided_models_begin_with_it_too(first, second, common, tmp_path, parallel):
    shutil.copytree(first / "runs" / "first", tmp_path / "runs" / "first")
    how = ("--parallel", parallel, *(("--split", "1:1") if parallel == "pipeline" else ()))
    found = trained(tmp_path, "second", 2, *common, "--onto", "first", *how)
    assert furthest(found, second) < 1e-9


def test_preferences_are_learned_on_top_with_the_adapter_as_the_reference(first, common, tmp_path):
    shutil.copytree(first / "runs" / "first", tmp_path / "runs" / "first")
    likes = write_pairs(tmp_path / "likes.jsonl")
    judged = (*common, "--dataset", likes, "--objective", "dpo", "--held-out", 0, "--max-steps", 2)
    trained(tmp_path, "liked", 1, *judged, "--onto", "first", "--eval-held-out", "off")
    losses = figures(tmp_path / "runs" / "liked", "step", "loss")
    assert losses[0] == pytest.approx(math.log(2), abs=1e-9)
    assert losses[1] < losses[0]
    trained(tmp_path, "more", 1, *judged, "--onto", "liked", "--max-steps", 1)
    chain = read_run(tmp_path / "runs" / "more" / "run.yml").start.lineage
    assert [each.objective for each in chain] == ["dpo", "sft"]


def test_an_adapter_for_other_layers_is_refused_before_training(first, common, tmp_path):
    adapter = shutil.copytree(first / "runs" / "first" / "adapter", tmp_path / "theirs")
    model = make_model(tmp_path / "other", intermediate_size=96)
    done = train_forked(tmp_path, 1, *common, "--onto", adapter, "--model", model)
    said = refused(done, "onto", "model.layers.0.mlp.up_proj", "other")
    assert said.count("onto:") == 1
