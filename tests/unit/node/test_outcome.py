"""The outcome of a preparation is reused for the same inputs, and for no others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.nvml import seen_cards
from support.tiny_model import make_model

from hearth.base.files import sha256_of
from hearth.config import resolve_run
from hearth.config.adapter import StartAdapter
from hearth.config.layout import Layout, held_adapter, staged_adapter, staged_name
from hearth.model.fetch import fetch_model
from hearth.node import outcome
from hearth.node.outcome import outcome_file, read_outcome, write_outcome

FACTS = {"nproc": 1, "ranks": []}


@pytest.fixture
def node(tmp_path):
    """Return the layout of a workspace, and a function that makes a run of a model folder there."""
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path / "node")})
    model, data = make_model(tmp_path / "tiny"), tmp_path / "words.jsonl"
    data.write_text('{"text": "a lamp"}\n')

    def run(**given):
        given = {"model": str(model), "dataset": str(data), "run": "night", **given}
        made = resolve_run(given, tmp_path / "runs")
        if made.dataset_sha256 and not made.shards:
            staged = layout.data / staged_name(made.dataset_sha256, data.name)
            staged.parent.mkdir(parents=True, exist_ok=True)
            staged.write_bytes(data.read_bytes())
        fetch_model(made.source, layout.models, say=lambda _: None)  # as a preparation does
        return made

    return layout, run


def file_of(node, nproc=0, gpus=(), **given):
    """Return the file of the outcome of a run with these inputs."""
    layout, run = node
    return outcome_file(run(**given), layout, nproc, gpus)


def test_the_same_inputs_find_it_under_another_name_of_the_run(node):
    write_outcome(file_of(node), FACTS)
    assert read_outcome(file_of(node, run="morning", wandb="off")) == FACTS


def test_auto_finds_what_was_kept_when_it_had_become_ddp(node):
    assert file_of(node, parallel="auto") == file_of(node, parallel="ddp")
    assert file_of(node, parallel="pipeline") != file_of(node)


def test_other_inputs_another_package_and_another_model_do_not_find_it(node, tmp_path, monkeypatch):
    files = {
        file_of(node),
        file_of(node, sequence_length=32),
        file_of(node, micro_batch=1),
        file_of(node, dataset="homelab-qa"),
        file_of(node, nproc=2),
        file_of(node, gpus=[{"name": "RTX 4070", "memory_mib": 8188}]),
    }
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    files.add(file_of(node))
    monkeypatch.setattr(outcome, "distributions", lambda: [])
    files.add(file_of(node))
    (tmp_path / "tiny" / "generation_config.json").write_text("{}")
    files.add(file_of(node))
    assert len(files - {None}) == 9


def test_the_adapter_that_a_run_begins_with_counts_and_must_be_here(node, tmp_path):
    layout, run = node
    files = {outcome_file(run(), layout, 1, [])}
    for content in (b"one", b"two"):
        weights = tmp_path / "adapter_model.safetensors"
        weights.write_bytes(content)
        start = StartAdapter(str(weights), sha256_of(weights), len(content))
        on_top = replace(run(), start=start)
        files.add(outcome_file(on_top, layout, 1, []))  # in place, where both see the same disk
        weights.rename(layout.data / staged_adapter(start))
        assert held_adapter(on_top, layout) == layout.data / staged_adapter(start)
        (layout.data / staged_adapter(start)).write_bytes(b"bad")
        assert outcome_file(on_top, layout, 1, []) is None
    assert len(files - {None}) == 3


def test_a_folder_counts_by_the_content_of_its_files(node, tmp_path):
    (tmp_path / "chats").mkdir()
    path = tmp_path / "chats" / "a.txt"
    found = set()
    for text in ("a lamp", "a cable", "a lamp"):
        path.write_text(text)
        layout, run = node
        made = run(dataset=str(tmp_path / "chats"))
        found.add(outcome_file(made, layout, 0, []))
    assert len(found - {None}) == 2
    path.unlink()
    assert outcome_file(made, layout, 0, []) is None


def test_without_its_data_or_model_a_run_has_none(node, tmp_path):
    layout, run = node
    made = run()
    Path(layout.datasets(made)[made.settings.dataset]).write_text("something else")
    assert outcome_file(made, layout, 0, []) is None
    made = run()
    (tmp_path / "tiny" / "model.safetensors").unlink()
    assert outcome_file(made, layout, 0, []) is None


def test_what_cannot_be_read_is_prepared_anew_and_only_the_newest_are_kept(node):
    path = file_of(node)
    path.parent.mkdir(parents=True)
    path.write_text("torn {")
    assert read_outcome(path) == {}
    for number in range(outcome._KEPT + 5):
        write_outcome(path.with_name(f"{number}.json"), FACTS)
    left = [json.loads(each.read_text()) for each in path.parent.glob("*.json")]
    assert left == [FACTS] * outcome._KEPT


def test_the_limit_on_a_gpus_power_counts_once_it_is_not_the_default_one(
    node, tmp_path, monkeypatch
):
    gpus = [{"name": "RTX 4070", "memory_mib": 8188}]
    before = file_of(node, gpus=gpus)  # as on a machine whose driver does not answer
    with seen_cards(tmp_path, monkeypatch) as cards:
        assert file_of(node, gpus=gpus) == before
        cards.set_limits(now=220.0)
        limited = file_of(node, gpus=gpus)
        assert limited != before
        cards.set_limits(now=250.0)
        assert file_of(node, gpus=gpus) not in (before, limited)
        assert file_of(node) == file_of(node, gpus=[])  # a run on the CPU
