"""Inspecting a node before a run: other runs in its folders, the sizes of its models."""

from __future__ import annotations

import json

import pytest
from support.cached_model import ID, NAME
from support.facts import assert_names

from hearth.config import resolve_run, write_run
from hearth.node import __main__ as verbs
from hearth.node.inspection import another_run, inspect_node

NIGHT = "2026-11-25T03:00:00Z"


@pytest.mark.parametrize("there", [None, f"created: '{NIGHT}'\n".encode()], ids=["none", "own"])
def test_its_own_files_and_an_empty_folder_are_fine(tmp_path, there):
    if there:
        (tmp_path / "run.yml").write_bytes(there)
    assert another_run(tmp_path, NIGHT, in_workspace=True) == []


@pytest.mark.parametrize(
    "there",
    [b"created: '2026-11-24T03:00:00Z'\n", b"", b"\xff\xfe"],
    ids=["other", "empty", "torn"],
)
def test_the_files_of_another_run_are_not_mixed_with_it(tmp_path, there):
    (tmp_path / "run.yml").write_bytes(there)
    (finding,) = another_run(tmp_path, NIGHT, in_workspace=True)
    assert_names(finding, tmp_path.name, tmp_path)


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
