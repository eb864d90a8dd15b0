"""Mixtures and streams through `train.yml`, over two nodes on this computer."""

from __future__ import annotations

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest
import yaml
from support.house import TINY, House
from support.lines import assert_line
from support.stand_in_hub import COMMIT, stand_in_hub

pytestmark = [pytest.mark.cluster, pytest.mark.rotated]


def test_all_files_of_a_mixture_come_to_all_nodes_and_each_set_is_evaluated(house: House, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n\n".join(f"a lamp and cable {n}" for n in range(40)))
    train = {"model": str(house.model), **TINY, "run": "mixed", "max_steps": 2}
    mixed = ("-e", json.dumps({"train": train}), "-e", f"dataset={house.data}=0.6,{texts}=0.4")
    screen = house.play("train.yml", *mixed)
    assert_line(screen, "data: mixture", "60.0%", "40.0%", "words.jsonl", "texts.txt")
    for node in ("desk", "laptop"):
        staged = (house.workspace(node) / "data").glob("*-*.*")
        assert {path.name.partition("-")[2] for path in staged} >= {"words.jsonl", "texts.txt"}
    (after,) = [
        line
        for line in house.metrics("mixed")
        if line.get("when") == "after" and line["kind"] == "evaluate"
    ]
    assert len(after["perplexity_by_set"]) == 2


def test_two_nodes_train_on_a_folder_and_name_its_files_and_columns(house: House, tmp_path):
    folder = tmp_path / "chats"
    (folder / "more").mkdir(parents=True)
    chats = [{"frage": f"{n} lamps?", "antwort": "a cable " * (1 + n % 3)} for n in range(40)]
    (folder / "a.json").write_text(json.dumps(chats[:20]))
    lines = "".join(json.dumps(chat) + "\n" for chat in chats[20:])
    (folder / "more" / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    given = house.tiny(run="folder", dataset=str(folder), max_steps=2)
    given = [*given, "-e", "columns=question=frage,answer=antwort"]
    screen = house.play("train.yml", *given)
    assert_line(screen, "data:", str(folder), "examples")
    (folder / "a.json").write_text(json.dumps([{"frage": "a"}, *chats[:20]]))
    given = house.tiny(run="bad", dataset=str(folder), max_steps=2)
    given = [*given, "-e", "columns=question=frage,answer=antwort"]
    assert_line(house.play("train.yml", *given, status=2), f"{folder}/a.json:1", "columns")


def test_the_ranks_read_a_stream_with_the_token_and_nothing_of_it_is_stored(house, tmp_path):
    words = tmp_path / "words"
    words.mkdir()
    table = pyarrow.table({"text": [f"a lamp and cable {n}" for n in range(300)]})
    pyarrow.parquet.write_table(table, words / "train.parquet")
    with stand_in_hub() as hub:
        hub.datasets["owner/words"] = words
        hub.only_with_token = True
        streamed = house.tiny(run="streamed", dataset="owner/words", streaming=True, max_steps=3)
        screen = house.play(
            "train.yml", *streamed, "-e", "nodes=laptop", HF_TOKEN=hub.token, **hub.variables
        )
    assert_line(screen, "data: owner/words", COMMIT[:12])
    record = yaml.safe_load((house.runs / "streamed" / "run.yml").read_text())
    assert record["data_revision"] == COMMIT
    assert len([line for line in house.metrics("streamed") if line["kind"] == "step"]) == 3
    assert not list(house.workspace("laptop").glob("data/**/*.parquet"))


def test_a_file_comes_to_a_node_whose_home_is_not_the_one_in_passwd(house: House):
    house.environment.pop("XDG_DATA_HOME")  # workspaces are then below the home
    screen = house.train("-e", "run=homeless", "-e", "max_steps=2")
    assert "homeless finished" in screen
    for node in ("desk", "laptop"):
        workspace = house.folder / "home/.local/share/hearth" / node
        assert [path.name.partition("-")[2] for path in workspace.glob("data/*.jsonl")] == [
            house.data.name
        ]
