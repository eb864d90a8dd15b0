"""A folder or a pattern of data files is one data set, whose problems name the file and line."""

from __future__ import annotations

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest
from support.facts import assert_names, refuses
from support.tiny_model import make_tokenizer

from hearth.base.errors import DataError
from hearth.data.documents import examples
from hearth.data.findings import Findings
from hearth.data.formats import open_records
from hearth.data.load import load_data
from hearth.data.locate import LocalFiles, ShardFiles, locate

PAIR = {"prompt": "a", "completion": "b"}
OPTIONS = {"sequence_length": 64, "packing": False, "held_out": 0.0, "seed": 1}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder `chats` in the working directory with a file of each kind."""
    monkeypatch.chdir(tmp_path)
    chats = tmp_path / "chats"
    (chats / "more").mkdir(parents=True)
    (chats / "a.jsonl").write_text(f"{json.dumps(PAIR)}\n" * 2)
    (chats / "b.csv").write_text("prompt,completion\na,b\n")
    (chats / "c.txt.gz").write_bytes(gzip.compress(b"one\n\ntwo"))
    table = pyarrow.table({"text": ["three"]})
    pyarrow.parquet.write_table(table, chats / "more" / "d.parquet")
    for name in ("README.md", ".hidden.jsonl", "LICENSE", "dataset_infos.json"):
        (chats / name).write_text("no data")
    (chats / ".cache").mkdir()
    (chats / ".cache" / "x.jsonl").write_text("no data")
    return chats


@pytest.fixture
def load(tmp_path):
    """Return a function that loads a data set, with one cache per test."""
    tokenizer = make_tokenizer()

    def loaded(dataset, **changes):
        said: list[str] = []
        options = OPTIONS | {"cache": tmp_path / "cache", "say": said.append} | changes
        return load_data(dataset, tokenizer, **options), said

    return loaded


ALL = [
    *("chats/a.jsonl:1", "chats/a.jsonl:2", "chats/b.csv:2"),
    *("chats/c.txt.gz:1", "chats/c.txt.gz:3", "chats/more/d.parquet:1"),
]


@pytest.mark.parametrize("typed", ["chats", "./chats", "chats/"])
def test_all_files_in_a_folder_are_read_in_the_order_of_their_names(folder, load, typed):
    data, _ = load(typed)
    assert [source for row in range(6) for source in data.train.sources(row)] == ALL
    assert (data.report.name, data.report.examples) == (typed, 6)


def test_files_of_a_pattern_are_read_and_findings_name_file_and_line(folder):
    (folder / "b.csv").write_text("prompt,completion\na\n")
    (folder / "a.jsonl").write_text(f"{json.dumps(PAIR)}\nx\n")
    (folder / "e.jsonl").write_text('{"frage": "a"}\n\n{"frage": "a"}\nx\n')
    located = locate("chats/[abe].*")
    findings = Findings(located.name, open_records(located).files)
    found = list(examples(open_records(located), findings))
    assert len(found) == 1
    with pytest.raises(DataError) as caught:
        findings.raise_any()
    not_json, not_csv, no_columns = caught.value.findings
    assert_names(not_json, "chats/a.jsonl:2", "JSON", "chats/e.jsonl:4")
    assert_names(not_csv, "chats/b.csv:2", "1 fields")
    assert_names(no_columns, "chats/e.jsonl:1", "frage", "chats/e.jsonl:3")


def test_a_question_is_asked_from_any_file_of_a_folder(folder, load):
    marked = [PAIR | {"split": "held_out", "prompt": "ask"}, PAIR]
    (folder / "b.jsonl").write_text("".join(json.dumps(each) + "\n" for each in marked))
    data, _ = load("chats")
    assert data.held_out.sources(0) == ["chats/b.jsonl:1"]
    assert data.question().text == "ask"


def test_tokens_of_a_folder_are_kept_until_a_file_or_the_order_changes(folder, load):
    first, _ = load("chats")
    assert len(load("chats")[1]) == 1
    files = locate("chats").files
    again, said = load(LocalFiles(files, "elsewhere"))
    assert len(said) == 1
    assert again.report.fingerprint == first.report.fingerprint
    (folder / "a.jsonl").rename(folder / "z.jsonl")
    assert load("chats")[0].report.fingerprint != first.report.fingerprint
    (folder / "b.csv").write_text("prompt,completion\na,c\n")
    assert len(load("chats")[1]) == 2


@pytest.mark.parametrize(
    ("change", "typed", "facts"),
    [
        ({"x.docx": "x"}, "chats", ["chats", "x.docx", "pattern"]),
        ({"x.docx": "x"}, "chats/*", ["chats/*", "x.docx", "README.md"]),
        ({"x.bin": "x"}, "chats/[ax]*", ["token shards", "x.bin"]),
        ({"empty.txt": " ", "void.csv": ""}, "chats", ["empty.txt", "void.csv", "empty"]),
        ({"test.jsonl": "{}"}, "chats", ["splits", "test.jsonl", "train*"]),
        ({"my-validation-01.jsonl": "{}"}, "chats", ["my-validation-01.jsonl"]),
        ({"array.jsonl": "[1]", "z.txt": "{}"}, "chats", ["array.jsonl", "z.txt", "JSON lines"]),
        ({"../bare/README.md": "x"}, "bare", ["bare", "no data files"]),
        ({"../tokens/x.bin": "x"}, "tokens", ["tokens", "token shards", "*_train_*.bin"]),
    ],
)
def test_what_does_not_belong_together_is_refused(folder, change, typed, facts):
    for name, content in change.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    with refuses(DataError, *facts):
        open_records(locate(typed))


def test_a_folder_of_held_out_files_alone_and_a_latest_file_are_no_mix_of_splits(folder):
    (folder / "latest.jsonl").write_text(json.dumps(PAIR))
    assert len(locate("chats").files) == 5
    for name in ("a.jsonl", "b.csv", "c.txt.gz", "latest.jsonl", "more/d.parquet"):
        path = folder / name
        path.rename(path.with_name(f"test_{path.name}"))
    assert len(locate("chats").files) == 5


def test_a_pattern_of_shards_stays_one_of_shards(folder):
    for number in (1, 2):
        (folder / f"{number}.bin").write_bytes(b"x")
    assert isinstance(locate("chats/*.bin"), ShardFiles)
    assert isinstance(locate("chats/*.jsonl"), LocalFiles)


def test_a_torn_file_in_a_folder_is_named(folder, load):
    (folder / "c.txt.gz").write_bytes(gzip.compress(b"one two three" * 99)[:30])
    with refuses(DataError, "chats/c.txt.gz", "unpacked"):
        load("chats")
