"""Preparing a node: the steps of a run from its data, a preset from scratch, an idle GPU."""

from __future__ import annotations

import json

import pytest
from huggingface_hub import constants
from support.facts import assert_names
from support.stand_in_hub import stand_in_hub
from support.tiny_model import make_dataset

from hearth.config import read_run, resolve_run, run_of, run_text, write_run
from hearth.config.layout import Layout
from hearth.node.prepare import prepare, prepared_facts, warn_of_idle_gpu

STEPS = ("sequence_length", "packing", "global_batch", "epochs", "warmup_steps")


@pytest.fixture
def ready(tmp_path, tiny_model):
    """Return a function that prepares a run with these settings, and the layout."""
    layout = Layout(*(tmp_path / name for name in ("runs", "runs", "data", "cache")), False)

    def prepared(dataset, **given):
        said: list[str] = []
        common = {"model": str(tiny_model), "dataset": str(dataset)}
        return prepare(resolve_run({**common, **given}, layout.results), layout, said.append), said

    return prepared, layout


def values(run):
    return {name: getattr(run.settings, name) for name in STEPS}


def test_few_examples_get_many_small_steps_and_the_reason_is_said(ready, tmp_path):
    prepared, said = ready[0](make_dataset(tmp_path / "x.jsonl", 200))
    run, rows = prepared.run, len(prepared.data.train)
    steps = round(run.settings.epochs * -(-rows // run.settings.global_batch))
    assert not run.settings.automatic_steps
    assert {run.origins[name] for name in STEPS} == {"auto"}
    assert steps >= 50
    assert 4 <= run.settings.global_batch <= 16
    line = next(line for line in said if line.startswith("batch:"))
    assert_names(line, f"{steps} steps", f"{run.settings.global_batch} rows")
    line = next(line for line in said if line.startswith("auto:"))
    assert_names(line, *(f"{name}=" for name in STEPS), f"{prepared.data.report.examples} examples")
    assert not any("WARNING" in line and "step" in line for line in said)


def test_what_was_typed_is_kept_with_its_origin(ready, tiny_data):
    given = {
        "sequence_length": 96,
        "packing": True,
        "global_batch": 3,
        "epochs": 1,
        "warmup_steps": 7,
    }
    prepared, said = ready[0](tiny_data, **given)
    assert values(prepared.run) == given
    assert not any(line.startswith("auto:") for line in said)


def test_every_node_resolves_the_same_and_a_resolved_run_stays_as_it_is(ready, tiny_data, tmp_path):
    prepare_run, layout = ready
    prepared, _ = prepare_run(tiny_data)
    elsewhere = Layout(*(tmp_path / "other" / name for name in ("a", "b", "c", "d")), False)
    asked = resolve_run(
        {"model": prepared.run.settings.model, "dataset": str(tiny_data)}, layout.results
    )
    assert values(prepare(asked, elsewhere, print).run) == values(prepared.run)
    again = prepare(run_of(run_text(prepared.run), "it"), layout, print)
    assert again.run == prepared.run
    assert again.data.report.fingerprint == prepared.data.report.fingerprint
    facts = prepared_facts(asked, layout, prepared)
    assert facts["steps"] == values(prepared.run)
    assert json.loads(json.dumps(facts["steps"])) == facts["steps"]  # goes to the controller
    assert prepared_facts(prepared.run, layout, prepared)["steps"] == {}


def test_a_resumed_run_keeps_the_steps_that_it_began_with(ready, tiny_data):
    prepare_run, layout = ready
    begun = prepare_run(tiny_data, run="night")[0].run
    write_run(begun, layout.run_dir("night") / "run.yml")
    resumed = resolve_run({"resume": "night", "max_steps": 900}, layout.results)
    assert values(resumed) == values(begun)
    assert values(read_run(layout.run_dir("night") / "run.yml")) == values(begun)


def test_a_run_of_few_steps_is_warned_of_before_it_starts(ready, tiny_data):
    _, said = ready[0](tiny_data, max_steps=3)
    (warning,) = (line for line in said if line.startswith("WARNING"))
    assert_names(warning, "3 steps", "max_steps")


def test_rows_are_no_longer_than_the_positions_of_the_model(ready, tmp_path, tiny_data):
    from support.tiny_model import make_model

    short = make_model(tmp_path / "short", max_position_embeddings=100)
    prepared, _ = ready[0](tiny_data, model=str(short))
    assert prepared.run.settings.sequence_length <= 100


def test_a_mixture_is_resolved_for_all_its_data_sets(ready, tmp_path):
    first, second = (make_dataset(tmp_path / f"{name}.jsonl", 60) for name in "ab")
    second.write_text(second.read_text().replace("lamp", "tree"))
    text = f"{first}=0.5,{second}=0.5"
    prepared, said = ready[0](text)
    assert not prepared.run.settings.automatic_steps
    assert (
        prepared.data.report.examples
        == sum(len(path.read_text().splitlines()) for path in (first, second))
        - prepared.data.report.held_out_examples
    )
    assert any(line.startswith("auto:") for line in said)


def test_documents_are_called_by_the_file_that_was_typed(ready, tmp_path):
    folder = tmp_path / "chats"
    folder.mkdir()
    file = make_dataset(folder / "a.jsonl", 30)
    for dataset in (folder, file):
        prepared, _ = ready[0](dataset)
        report = prepared.data.report
        assert report.examples + report.held_out_examples == 30
        sources = prepared.data.train.sources(0)
        assert sources and all(source.startswith(f"{file}:") for source in sources)


PRESET = """
id: owner/tiny
licence: mit
settings:
  {scratch: true, lora: false, sequence_length: 96, global_batch: 4, learning_rate: 0.001}
"""


@pytest.fixture
def hub(tmp_path, monkeypatch, tiny_model):
    (tmp_path / "tiny.yml").write_text(PRESET)
    monkeypatch.setattr("hearth.config.presets.PRESETS", tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with stand_in_hub() as running:
        running.models["owner/tiny"] = tiny_model
        for name, value in running.variables.items():
            monkeypatch.setenv(name, value)
        yield running


def test_it_takes_no_weights_from_the_hub_and_tells_batch_and_learning_rate(
    hub, tmp_path, tiny_data
):
    layout = Layout(*(tmp_path / name for name in ("runs", "runs", "data", "cache")), False)
    given = {"model": "tiny", "dataset": str(tiny_data), "global_batch": 16}
    run = resolve_run(given, layout.results)
    said: list[str] = []
    prepared = prepare(run, layout, said.append)
    assert not any("/resolve/" in asked and "safetensors" in asked for asked in hub.asked)
    assert not list(prepared.model.path.glob("*.safetensors"))
    for lines in (said, prepared_facts(run, layout, prepared)["summary"]):
        batch, advice = (line for line in lines if line.startswith(("batch:", "learning_rate:")))
        tokens = round(prepared.data.report.tokens / prepared.data.report.rows * 16)
        assert_names(batch, "16 rows", f"{tokens} tokens")
        assert_names(advice, "learning_rate", "0.001", 16 * 96, "0.002")


@pytest.mark.parametrize(
    ("cards", "usable", "warned"), [(1, False, True), (1, True, False), (0, False, False)]
)
def test_training_on_the_processor_beside_a_gpu_is_not_silent(monkeypatch, cards, usable, warned):
    monkeypatch.setattr("hearth.node.prepare.nvidia_cards", lambda: cards)
    monkeypatch.setattr("hearth.node.prepare.has_nvidia_gpu", lambda: usable)
    said: list[str] = []
    warn_of_idle_gpu(said.append)
    assert ["processor" in line and "GPU" in line for line in said] == [True] * warned
