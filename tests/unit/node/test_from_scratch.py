"""Preparing a preset that begins with random weights: the files it takes, the lines it says."""

from __future__ import annotations

import pytest
from huggingface_hub import constants
from support.facts import assert_names
from support.stand_in_hub import stand_in_hub

from hearth.config import resolve_run
from hearth.config.layout import Layout
from hearth.node.prepare import prepare, prepared_facts

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
