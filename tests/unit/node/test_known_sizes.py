"""The sizes of a model that a node has, asked before anything is fetched."""

from __future__ import annotations

import json

import pytest
from support.cached_model import ID, NAME

from hearth.config import resolve_run, write_run
from hearth.node import __main__ as verbs
from hearth.node.inspection import inspect_node

CONFIG = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 99},
    **{"num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2},
}


@pytest.mark.parametrize("has_it", [False, True])
def test_a_node_tells_what_it_has_and_does_not_ask_the_hub(tmp_path, monkeypatch, has_it):
    monkeypatch.setenv("HEARTH_WORKSPACE", str(tmp_path))
    run = resolve_run({"model": ID, "dataset": "homelab-qa"}, tmp_path / "results")
    write_run(run, tmp_path / "run.yml")
    if has_it:
        folder = tmp_path / "models" / NAME
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(CONFIG))
    layers = inspect_node(tmp_path / "run.yml", {"shape": "here"})["facts"]["shape"].get(
        "num_hidden_layers"
    )
    assert layers == (5 if has_it else None)
    config = verbs.config(tmp_path / "run.yml", {"hub": False})["facts"]["config"]
    assert config == (CONFIG if has_it else {})
