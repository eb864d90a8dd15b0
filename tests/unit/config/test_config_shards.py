"""Token shards, and data sets of several files, in the settings and in the run file."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from support.facts import assert_names, refuses
from support.shards import write_shard

from hearth.config import ConfigError, read_run, resolve_run, write_run
from hearth.config.layout import Layout, held_shards, staged_of

MODEL = {"model": "smollm2-135m", "run": "night"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with three shards, which is the working directory, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    for name in ("train_1", "train_2", "val_1"):
        write_shard(tmp_path / "data" / f"fine_{name}.bin", [ord(name[0])] * (20 + ord(name[-1])))
    (tmp_path / "words.jsonl").write_text('{"text": "a lamp"}\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def request(folder, **given):
    shards = {"dataset": "data/*_train_*.bin", "validation": "data/*_val_*.bin"}
    return resolve_run(MODEL | shards | given, folder / "runs")


def test_the_run_file_names_each_shard_with_its_checksum(folder):
    run = request(folder)
    write_run(run, folder / "runs" / "night" / "run.yml")
    assert read_run(folder / "runs" / "night" / "run.yml") == run
    found = [(shard.path, shard.size, shard.validation) for shard in run.shards]
    assert found == [
        (f"{folder}/data/fine_{name}.bin", 1024 + 2 * count, validation)
        for name, count, validation in (
            ("train_1", 69, False),
            ("train_2", 70, False),
            ("val_1", 69, True),
        )
    ]
    assert len({shard.sha256 for shard in run.shards} | {run.dataset_sha256}) == 4
    assert run.settings.dataset == f"{folder}/data/*_train_*.bin"


def test_a_resumed_run_keeps_its_shards_and_refuses_changed_ones(folder):
    run = request(folder)
    write_run(run, folder / "runs" / "night" / "run.yml")
    assert resolve_run({"resume": "night"}, folder / "runs").shards == run.shards
    write_shard(folder / "data" / "fine_val_1.bin", [3] * 50)
    with refuses(ConfigError, "dataset", "night", "changed"):
        resolve_run({"resume": "night"}, folder / "runs")


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"dataset": "data/*_test_*.bin"}, ["*_test_*.bin", "fine_train_1.bin"]),
        ({"validation": "data/*_test_*.bin"}, ["*_test_*.bin", "fine_val_1.bin"]),
        ({"validation": "words.jsonl"}, ["validation", "words.jsonl", ".bin"]),
        ({"dataset": "words.jsonl"}, ["validation", "words.jsonl", "held_out"]),
        ({"dataset": "data/*.bin"}, ["validation", "fine_val_1.bin"]),
        ({"validation": "none", "eval_every": 3}, ["eval_every", "validation"]),
        ({"validation_tokens": 0}, ["validation_tokens"]),
    ],
)
def test_shards_that_cannot_be_used_are_refused(folder, given, facts):
    with refuses(ConfigError, *facts):
        request(folder, **given)


def test_broken_shards_are_refused_all_at_once(folder):
    for name in ("train_1", "val_1"):
        (folder / "data" / f"fine_{name}.bin").write_bytes(b"short")
    with pytest.raises(ConfigError) as caught:
        request(folder)
    first, second = caught.value.findings
    assert_names(first, "fine_train_1.bin")
    assert_names(second, "fine_val_1.bin")


def test_a_node_uses_its_own_copy_else_the_same_file_at_the_same_path(folder):
    run = request(folder)
    node = Layout.from_environment({"HEARTH_WORKSPACE": str(folder / "node")})
    first, second, _ = run.shards

    def held():
        return held_shards(run, node, lambda _: None)

    assert held() == {shard: node.shard(shard)[1] for shard in run.shards}
    node.data.mkdir(parents=True, exist_ok=True)
    own = node.data / staged_of(first)
    own.write_bytes((folder / "data" / "fine_train_1.bin").read_bytes())
    write_shard(folder / "data" / "fine_train_2.bin", [1] * 70)
    assert held()[first] == own
    assert second not in held(), "other content of the same size"
    own.write_bytes(b"torn")
    assert held()[first] == node.shard(first)[1]
    elsewhere = replace(run, shards=(replace(first, path="words.jsonl/fine_train_1.bin"),))
    assert held_shards(elsewhere, node, print) == {}, "no folder that this user can look into"


@pytest.fixture
def chats(folder):
    """A folder with two text files."""
    for name in ("a", "b"):
        (folder / "chats" / name).mkdir(parents=True)
        (folder / "chats" / name / "x.jsonl").write_text(f'{{"text": "{name} torch"}}\n')
    return folder / "chats"


@pytest.mark.parametrize("typed", ["chats", "chats/*/*.jsonl"])
def test_the_files_of_a_folder_are_named_and_a_resumed_run_refuses_changed_ones(
    folder, chats, typed
):
    run = request(folder, dataset=typed, validation="none")
    write_run(run, folder / "runs" / "night" / "run.yml")
    assert read_run(folder / "runs" / "night" / "run.yml") == run
    assert run.settings.dataset == f"{folder}/{typed}"
    assert [file.path for file in run.shards] == [f"{chats}/{name}/x.jsonl" for name in "ab"]
    assert len({file.sha256 for file in run.shards} | {run.dataset_sha256}) == 3
    assert run.packs_documents
    assert resolve_run({"resume": "night"}, folder / "runs").shards == run.shards
    (chats / "b" / "x.jsonl").write_text('{"text": "another"}\n')
    with refuses(ConfigError, "dataset", "night", "changed"):
        resolve_run({"resume": "night"}, folder / "runs")


def test_a_folder_that_lost_or_got_a_file_is_another_data_set(folder, chats):
    write_run(request(folder, dataset="chats", validation="none"), folder / "runs/night/run.yml")
    (chats / "c.jsonl").write_text('{"text": "more"}\n')
    with refuses(ConfigError, "dataset", "night", "changed"):
        resolve_run({"resume": "night"}, folder / "runs")


def test_a_mixture_may_have_folders_and_names_a_file_that_is_in_both(folder, chats):
    mixed = {"dataset": "chats=1,words.jsonl=1", "validation": "none"}
    run = request(folder, **mixed)
    assert set(run.data_checksums) == {f"{folder}/chats", f"{folder}/words.jsonl"}
    assert [file.path for file in run.files_of(f"{folder}/chats")] == [
        f"{chats}/{name}/x.jsonl" for name in "ab"
    ]
    node = Layout.from_environment({"HEARTH_WORKSPACE": str(folder / "node")})
    assert list(node.datasets(run)) == [f"{folder}/words.jsonl"]
    (folder / "words.jsonl").write_bytes((chats / "b" / "x.jsonl").read_bytes())
    with refuses(ConfigError, f"{chats}/b/x.jsonl", f"{folder}/words.jsonl"):
        request(folder, **mixed)


def test_a_node_finds_each_text_file_by_its_content(folder, chats):
    run = request(folder, dataset="chats", validation="none")
    node = Layout.from_environment({"HEARTH_WORKSPACE": str(folder / "node")})
    first, _ = run.shards
    assert held_shards(run, node, print) == {file: node.shard(file)[1] for file in run.shards}
    node.data.mkdir(parents=True)
    own = node.data / staged_of(first)
    own.write_bytes((chats / "a" / "x.jsonl").read_bytes())
    (chats / "b" / "x.jsonl").write_text('{"text": "B torch"}\n')
    assert held_shards(run, node, print) == {first: own}, "other content of the same size"


def test_run_files_of_earlier_versions_have_shards_without_their_data_set(folder):
    path = folder / "runs" / "night" / "run.yml"
    run = request(folder)
    write_run(run, path)
    content = yaml.safe_load(path.read_text())
    for shard in content["shards"]:
        del shard["dataset"]
    path.write_text(yaml.safe_dump(content))
    assert read_run(path) == run
    assert resolve_run({"resume": "night"}, folder / "runs").shards == run.shards


def test_columns_are_no_setting_of_token_shards(folder):
    with refuses(ConfigError, "columns", "token shards"):
        request(folder, columns="text=words")


def test_token_shards_hold_no_preferences(folder):
    with refuses(ConfigError, "objective", "dpo", "token shards", "objective=sft"):
        request(folder, objective="dpo", scratch="off")
