"""Measuring the parts of a model that is not on this node: a layer, the embeddings, the head."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hearth.config import resolve_run, run_text
from hearth.config.layout import Layout
from hearth.node import __main__ as command
from hearth.node import layer_probe, speed
from hearth.node.layer_probe import probe_layers

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 80,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 4000,
    "tie_word_embeddings": False,
}


def test_the_parts_of_a_model_are_measured_without_its_weights_and_kept(monkeypatch, tmp_path):
    """In this process, since the one aside would import torch once more."""
    measurements = []

    def aside(verb, run, _, spec):
        (tmp_path / "config.json").write_text(json.dumps(spec["config"]))
        measured = probe_layers(
            run.settings, Path(tmp_path), torch.device("cpu"), "fp32", 2, nullcontext
        )
        measurements.append(measured)
        speed.keep_layers(layout.speeds, {"config": spec["config"]}, measured)

    monkeypatch.setattr(speed, "measure_aside", aside)
    monkeypatch.setattr(speed, "case_of_layers", lambda _, config, *__: {"config": config})
    monkeypatch.setenv("HEARTH_WORKSPACE", str(tmp_path))
    layout = Layout.from_environment()
    run = resolve_run(
        {"model": "smollm2-135m", "parallel": "pipeline", "sequence_length": 64, "micro_batch": 2},
        layout.results,
    )
    (tmp_path / "run.yml").write_text(run_text(run))
    spec = {"config": CONFIG, "nproc": 2, "address": "127.0.0.1", "allowed": []}

    def inspect_with(**changes):
        return command._layers(tmp_path / "run.yml", spec | changes)["facts"]

    assert inspect_with(measure=False) == {"nproc": 2, "layers": [], "checkpoint": None}
    first = inspect_with(measure=True, nproc=1)["layers"][0]
    for part in first["speed"].values():
        assert tuple(part["sizes"]) in ((1,), (1, 2))
        assert min(part["seconds"]) > 0
    assert inspect_with(measure=False)["layers"] == [first, first]
    assert len(measurements) == 1
    assert inspect_with(measure=False, config={**CONFIG, "hidden_size": 32})["layers"] == []


def test_a_head_that_does_not_fit_leaves_the_layers_timed(monkeypatch, tmp_path):
    drawn = layer_probe.drawn_stage

    def small(*given):
        if given[4].start == given[5]:  # the head
            raise MemoryError
        return drawn(*given)

    monkeypatch.setattr(layer_probe, "drawn_stage", small)
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 2}))
    settings = resolve_run(
        {"model": "smollm2-135m", "parallel": "pipeline", "sequence_length": 64}, tmp_path
    ).settings
    found = probe_layers(settings, tmp_path, torch.device("cpu"), "fp32", 1, nullcontext).speed
    assert found.head is None
    assert found.embedding.sizes == found.layer.sizes == (1,)


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_the_layers_of_a_small_model_are_timed_without_embeddings_and_head(
    monkeypatch, tmp_path, layers
):
    """These are timed by themselves, so they would be counted twice."""
    computed = set()

    def watched(settings, folder, device, precision, part, count):
        stage = drawn_stage(settings, folder, device, precision, part, count)
        base = stage.network.get_base_model()
        for name in ("model.embed_tokens", "lm_head", *(f"model.layers.{n}" for n in part)):
            what = ("layer" if "layers" in name else name, part.start, part.stop)
            module = base.get_submodule(name)
            if list(module.parameters()):  # else it belongs to another stage
                module.register_forward_hook(lambda *_, what=what: computed.add(what))
        return stage

    drawn_stage = layer_probe.drawn_stage
    monkeypatch.setattr(layer_probe, "drawn_stage", watched)
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    settings = resolve_run(
        {"model": "smollm2-135m", "parallel": "pipeline", "sequence_length": 64}, tmp_path
    ).settings
    probe_layers(settings, tmp_path, torch.device("cpu"), "fp32", 1, nullcontext)
    (timed,) = [each for each in computed if each[0] == "layer"]
    assert computed == {timed, ("model.embed_tokens", 0, 0), ("lm_head", layers, layers)}


@pytest.mark.parametrize(
    ("parameters", "count", "timed"),
    [(40_000_000, 5, 1), (10_000_000, 5, 3), (10_000_000, 2, 2), (1_000_000, 40, 8)],
)
def test_layers_are_timed_together_until_they_fill_the_cache(parameters, count, timed):
    shape = SimpleNamespace(linear_parameters=4 * parameters, num_hidden_layers=4)
    assert layer_probe._several(shape, count) == timed
    assert layer_probe._several(None, count) == 1
