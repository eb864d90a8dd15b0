"""Mixtures and streams through `train.yml`, over two nodes on this computer."""

from __future__ import annotations

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest
import yaml
from support.facts import assert_line
from support.local_cluster import TINY, LocalCluster
from support.stand_in_hub import COMMIT, stand_in_hub

pytestmark = [pytest.mark.cluster, pytest.mark.rotated]


def test_all_files_of_a_mixture_come_to_all_nodes_and_each_set_is_evaluated(
    local: LocalCluster, tmp_path
):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n\n".join(f"a lamp and cable {n}" for n in range(40)))
    train = {"model": str(local.model), **TINY, "run": "mixed", "max_steps": 2}
    mixed = ("-e", json.dumps({"train": train}), "-e", f"dataset={local.data}=0.6,{texts}=0.4")
    screen = local.play("train.yml", *mixed)
    assert_line(screen, "data: mixture", "60.0%", "40.0%", "words.jsonl", "texts.txt")
    for node in ("desk", "laptop"):
        staged = (local.workspace(node) / "data").glob("*-*.*")
        assert {path.name.partition("-")[2] for path in staged} >= {"words.jsonl", "texts.txt"}
    (after,) = [
        line
        for line in local.metrics("mixed")
        if line.get("when") == "after" and line["kind"] == "evaluate"
    ]
    assert len(after["perplexity_by_set"]) == 2


def test_two_nodes_train_on_a_folder_and_name_its_files_and_columns(local: LocalCluster, tmp_path):
    folder = tmp_path / "chats"
    (folder / "more").mkdir(parents=True)
    chats = [{"frage": f"{n} lamps?", "antwort": "a cable " * (1 + n % 3)} for n in range(40)]
    (folder / "a.json").write_text(json.dumps(chats[:20]))
    lines = "".join(json.dumps(chat) + "\n" for chat in chats[20:])
    (folder / "more" / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    given = local.tiny(run="folder", dataset=str(folder), max_steps=2)
    given = [*given, "-e", "columns=question=frage,answer=antwort"]
    screen = local.play("train.yml", *given)
    assert_line(screen, "data:", str(folder), "examples")
    (folder / "a.json").write_text(json.dumps([{"frage": "a"}, *chats[:20]]))
    given = local.tiny(run="bad", dataset=str(folder), max_steps=2)
    given = [*given, "-e", "columns=question=frage,answer=antwort"]
    assert_line(local.play("train.yml", *given, status=2), f"{folder}/a.json:1", "columns")


def test_the_ranks_read_a_stream_with_the_token_and_nothing_of_it_is_stored(local, tmp_path):
    words = tmp_path / "words"
    words.mkdir()
    table = pyarrow.table({"text": [f"a lamp and cable {n}" for n in range(300)]})
    pyarrow.parquet.write_table(table, words / "train.parquet")
    with stand_in_hub() as hub:
        hub.datasets["owner/words"] = words
        hub.only_with_token = True
        streamed = local.tiny(run="streamed", dataset="owner/words", streaming=True, max_steps=3)
        screen = local.play(
            "train.yml", *streamed, "-e", "nodes=laptop", HF_TOKEN=hub.token, **hub.variables
        )
    assert_line(screen, "data: owner/words", COMMIT[:12])
    record = yaml.safe_load((local.runs / "streamed" / "run.yml").read_text())
    assert record["data_revision"] == COMMIT
    assert len([line for line in local.metrics("streamed") if line["kind"] == "step"]) == 3
    assert not list(local.workspace("laptop").glob("data/**/*.parquet"))


def test_a_file_comes_to_a_node_whose_home_is_not_the_one_in_passwd(local: LocalCluster):
    local.environment.pop("XDG_DATA_HOME")  # workspaces are then below the home
    screen = local.train("-e", "run=homeless", "-e", "max_steps=2")
    assert "homeless finished" in screen
    for node in ("desk", "laptop"):
        workspace = local.folder / "home/.local/share/hearth" / node
        assert [path.name.partition("-")[2] for path in workspace.glob("data/*.jsonl")] == [
            local.data.name
        ]
