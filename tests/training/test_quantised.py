"""QLoRA on a CPU: the adapter learns, quantised weights stay, and ranks change nothing."""

from __future__ import annotations

import pytest
import torch
from support.ranks import figures, learned, metrics, stopped, succeeded, train_forked
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from hearth.config import resolve_run, write_run
from hearth.config.layout import Layout
from hearth.node.prepare import prepare
from hearth.node.speed import measured_here
from hearth.ranks.world import join
from hearth.trainer.assembly import assemble

BITS = ["load_in_4bit", "load_in_8bit"]


@pytest.fixture(
    scope="module",
    params=[BITS[0], pytest.param(BITS[1], marks=pytest.mark.rotated("quantised training"))],
)
def alone(request, tmp_path_factory, arguments):
    """Return a folder with a run of one rank, and what others repeat of it."""
    cwd = tmp_path_factory.mktemp("alone")
    small = f"--{request.param.replace('_', '-')}"
    common = [*arguments, small, "--max-steps", 12, "--eval-held-out", "--eval-every", 5]
    succeeded(train_forked(cwd, 1, "--run-name", "night", *common))
    return cwd, common


def test_it_is_evaluated_before_and_after_and_learns(alone):
    told = metrics(alone[0] / "runs" / "night", "evaluate")
    assert [each["when"] for each in told] == ["before", "during", "during", "after"]
    assert told[-1]["loss"] < told[0]["loss"]
    assert len(metrics(alone[0] / "runs" / "night", "sample")) == 2


def test_three_ranks_learn_what_one_learns(alone, tmp_path):
    cwd, common = alone
    succeeded(train_forked(tmp_path, 3, "--run-name", "night", *common, "--split", "4:2:1"))
    losses = [figures(where / "runs" / "night", "step", "loss") for where in (cwd, tmp_path)]
    assert losses[1][-1] < losses[1][0]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    expected, found = learned(cwd, "night"), learned(tmp_path, "night")
    assert found.keys() == expected.keys()
    # Of B, which begins at zero, all is change; the float32 bound of the other tests.
    for name in (name for name in found if "lora_B" in name):
        assert (found[name] - expected[name]).norm() <= 1e-3 * expected[name].norm()


@pytest.mark.rotated("quantised training")
def test_weights_that_are_stored_in_4_bits_learn_what_those_of_16_bits_learn(
    tmp_path, tiny_model, arguments
):
    stored = tmp_path / "stored"
    bits = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,  # as it is published; the run computes in float32
    )
    quantised = AutoModelForCausalLM.from_pretrained(tiny_model, quantization_config=bits)
    quantised.save_pretrained(stored)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(stored)
    common = [*arguments, "--load-in-4bit", "--max-steps", 4]
    for run, model in (("night", tiny_model), ("stored", stored)):
        succeeded(train_forked(tmp_path, 1, "--run-name", run, *common, "--model", model))
    losses = [figures(tmp_path / "runs" / run, "step", "loss") for run in ("night", "stored")]
    assert losses[1] == losses[0]


@pytest.mark.rotated("quantised training")
def test_a_stopped_run_goes_on_bit_for_bit(alone, tmp_path):
    cwd, common = alone
    stopped(tmp_path, "night", 1, *common)
    succeeded(train_forked(tmp_path, 1, "--resume", "night"))
    expected, found = learned(cwd, "night"), learned(tmp_path, "night")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    "small", [BITS[0], pytest.param(BITS[1], marks=pytest.mark.rotated("quantised training"))]
)
def test_neither_training_nor_evaluation_changes_quantised_weights(
    tmp_path, tiny_model, tiny_data, small
):
    settings = {
        **{"model": str(tiny_model), "dataset": str(tiny_data), "sequence_length": 96},
        **{"packing": True, "epochs": 1},
        **{small: True, "max_steps": 4, "learning_rate": 0.01, "warmup_steps": 0},
        **{"split": "equal", "micro_batch": 1, "eval_every": 2, "wandb": "off"},
    }
    layout = Layout(*(tmp_path / name for name in ("runs", "runs", "data", "models")), False)
    run = resolve_run(settings, layout.results)
    write_run(run, layout.run_dir(run.name) / "run.yml")
    prepared = prepare(run, layout, print)
    run = prepared.run
    trainer = assemble(run, layout, prepared, measured_here(run, layout, prepared, print), join({}))
    network = trainer.learning.model.network

    def weights():
        return {name: weight.detach().clone() for name, weight in network.named_parameters()}

    before = weights()
    packed = [name for name, weight in before.items() if not weight.is_floating_point()]
    assert len(packed) == 2 * 7  # every linear layer of both blocks
    assert trainer.train() == "finished"
    changed = {name for name, weight in weights().items() if not torch.equal(weight, before[name])}
    assert changed == {name for name, _ in trainer.learning.model.trainable()}
    assert all("lora_" in name for name in changed)
