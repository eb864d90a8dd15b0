"""The adapter that a run is to begin with, and what it determines of the run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from support.facts import refuses

from hearth.base.errors import ConfigError
from hearth.base.files import sha256_of
from hearth.config import read_run, resolve_run, run_of, run_text, write_run
from hearth.config.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from hearth.record.events import EndEvent, StartEvent
from hearth.record.onto import find_adapter

FORM = {"r": 8, "lora_alpha": 24.0, "target_modules": ["v_proj", "q_proj"], "peft_type": "LORA"}
BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"
LAYER = "base_model.model.model.layers.0.self_attn.q_proj"


def make_adapter(folder, **more):
    folder.mkdir(parents=True)
    config = FORM | {"base_model_name_or_path": BASE, "inference_mode": True} | more
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config))
    tensors = {
        f"{LAYER}.lora_A.weight": torch.ones(8, 4),
        f"{LAYER}.lora_B.weight": torch.ones(4, 8),
    }
    save_file(tensors, folder / ADAPTER_WEIGHTS)
    return folder


def make_run(runs, name="night", ended=True, **given):
    """Write the files of a run that was trained, and return its folder."""
    form = {"model": "smollm2-135m", "lora_rank": 8, "lora_targets": "q_proj,v_proj"}
    given = given if "onto" in given else form | given
    run = resolve_run(given | {"run": name}, runs, find_adapter=find_adapter)
    write_run(run, runs / name / "run.yml")
    events = [StartEvent(step=0, steps=12, model="0" * 16)]
    if ended:
        events.append(EndEvent(step=12, state="finished"))
        make_adapter(runs / name / "adapter")
    (runs / name / "metrics.jsonl").write_text("".join(event.line for event in events))
    return runs / name


def requested(runs, **given):
    return resolve_run(given, runs, find_adapter=find_adapter, say=lambda _: None)


def test_a_run_on_top_of_another_has_its_model_and_the_form_of_its_adapter(tmp_path):
    night = make_run(tmp_path, lora_alpha=24, rslora="on")
    pinned = read_run(night / "run.yml")
    write_run(replace(pinned, source=replace(pinned.source, revision="a" * 40)), night / "run.yml")
    run = requested(tmp_path, onto="night", learning_rate=1e-5)
    settings = run.settings
    assert (settings.model, settings.onto) == ("smollm2-135m", "night")
    assert run.source.revision == "a" * 40
    assert (settings.lora_rank, settings.lora_alpha, settings.rslora) == (8, 24, True)
    assert settings.lora_targets == ("q_proj", "v_proj")
    assert settings.learning_rate == 1e-5
    assert run.start.sha256 == sha256_of(night / "adapter" / ADAPTER_WEIGHTS)
    assert run.start.model == "0" * 16
    assert [(each.run, each.step) for each in run.start.lineage] == [("night", 12)]
    assert run_of(run_text(run), "run.yml") == run


def test_a_chain_of_runs_is_recorded(tmp_path):
    make_run(tmp_path, "one")
    make_run(tmp_path, "two", onto="one")
    run = requested(tmp_path, onto="two")
    assert [each.run for each in run.start.lineage] == ["two", "one"]
    assert str(run.start).index("two") < str(run.start).index("one")


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        ({"lora_rank": 16}, ["lora_rank", 16, 8]),
        ({"lora_targets": "q_proj"}, ["lora_targets", "q_proj"]),
        ({"dora": "on"}, ["dora", "on", "off"]),
        ({"model": "llama2-7b"}, ["model", "SmolLM2"]),
        ({"lora": "off"}, ["onto", "lora=off"]),
        ({"scratch": "on"}, ["onto", "scratch=off"]),
    ],
)
def test_a_typed_value_that_the_adapter_does_not_have_is_refused_by_name(tmp_path, typed, facts):
    make_run(tmp_path)
    with refuses(ConfigError, *facts):
        requested(tmp_path, onto="night", **typed)


def test_one_that_it_has_is_no_conflict(tmp_path):
    make_run(tmp_path)
    typed = {"lora_targets": "v_proj,q_proj", "lora_rank": 8, "model": BASE}
    assert requested(tmp_path, onto="night", **typed).settings.lora_rank == 8


def test_a_file_of_settings_can_name_it(tmp_path):
    make_run(tmp_path / "runs")
    file = tmp_path / "mine.yml"
    file.write_text("onto: night\nlora_rank: 16\n")
    with refuses(ConfigError, "lora_rank"):
        resolve_run({}, tmp_path / "runs", file=file, find_adapter=find_adapter)
    file.write_text("onto: night\n")
    run = resolve_run({}, tmp_path / "runs", file=file, find_adapter=find_adapter)
    assert run.start is not None


def test_a_folder_says_its_base_and_form_itself(tmp_path):
    folder = make_adapter(tmp_path / "theirs", use_dora=True)
    run = requested(tmp_path / "runs", onto=str(folder))
    assert (run.settings.model, run.settings.onto) == ("smollm2-135m", str(folder))
    assert (run.settings.lora_rank, run.settings.dora) == (8, True)
    assert run.start.lineage == ()
    with refuses(ConfigError, "model", BASE):
        requested(tmp_path / "runs", onto=str(folder), model="llama2-7b")


def test_the_best_weights_of_a_run_have_its_lineage(tmp_path):
    night = make_run(tmp_path)
    make_adapter(night / "best")
    run = requested(tmp_path, onto=str(night / "best"))
    assert [(each.run, each.step) for each in run.start.lineage] == [("night", None)]


@pytest.mark.parametrize(
    ("more", "fact"),
    [
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"peft_type": "IA3"}, "peft_type"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"bias": "all"}, "bias"),
    ],
)
def test_an_adapter_that_is_no_ordinary_one_is_refused(tmp_path, more, fact):
    folder = make_adapter(tmp_path / "theirs", **more)
    with refuses(ConfigError, "onto", fact):
        requested(tmp_path, onto=str(folder))


def test_the_layers_of_a_pattern_are_those_that_it_has(tmp_path):
    folder = make_adapter(tmp_path / "theirs", target_modules="(?:.*?(?:q)_proj)")
    assert requested(tmp_path, onto=str(folder)).settings.lora_targets == ("q_proj",)


@pytest.mark.parametrize("damage", ["cut", "rubbish", "empty", "gone", "config"])
def test_a_damaged_adapter_is_named(tmp_path, damage):
    folder = make_run(tmp_path) / "adapter"
    file = folder / ADAPTER_WEIGHTS
    match damage:
        case "cut":
            file.write_bytes(file.read_bytes()[:-8])
        case "rubbish":
            file.write_bytes(b"\xff" * 100)
        case "empty":
            file.write_bytes(b"")
        case "gone":
            file.unlink()
        case "config":
            (folder / ADAPTER_CONFIG).write_text("[")
            folder = folder.rename(tmp_path / "theirs")
            file = folder / ADAPTER_CONFIG
    with refuses(ConfigError, "onto", file):
        requested(tmp_path, onto=str(folder) if damage == "config" else "night")


@pytest.mark.parametrize(
    ("onto", "facts"),
    [
        ("nowhere", ["nowhere", "night"]),
        ("someone/adapter", ["someone/adapter", "hf download"]),
        ("\0", ["onto"]),
        ("x" * 5000, ["onto"]),
    ],
)
def test_what_is_no_adapter_is_named(tmp_path, onto, facts):
    make_run(tmp_path)
    with refuses(ConfigError, *facts):
        requested(tmp_path, onto=onto)


def test_a_run_that_has_not_ended_is_refused_with_the_way_to_end_it(tmp_path):
    make_run(tmp_path, ended=False)
    with refuses(ConfigError, "onto", "resume=night"):
        requested(tmp_path, onto="night")


def test_a_run_that_trained_all_weights_is_refused_with_what_to_type(tmp_path):
    make_run(tmp_path, lora="off", lora_targets="all-linear")
    with refuses(ConfigError, "onto", f"model={tmp_path / 'night' / 'model'}"):
        requested(tmp_path, onto="night")


def test_a_resumed_run_keeps_its_beginning_though_that_is_gone(tmp_path):
    make_run(tmp_path, "one")
    make_run(tmp_path, "two", onto="one")
    start = read_run(tmp_path / "two" / "run.yml").start
    (tmp_path / "one" / "run.yml").unlink()
    assert requested(tmp_path, resume="two").start == start
    with refuses(ConfigError, "onto"):
        requested(tmp_path, resume="two", onto="three")
