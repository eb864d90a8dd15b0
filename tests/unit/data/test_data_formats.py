"""The same examples come out of every format, each with its line."""

from __future__ import annotations

import json

import pyarrow
import pyarrow.parquet
import pytest
from support.facts import refuses

from hearth.base.errors import DataError
from hearth.data.columns import Example, to_example
from hearth.data.documents import examples
from hearth.data.findings import Findings
from hearth.data.formats import open_records
from hearth.data.locate import HubDataset, LocalFile, locate, shipped_names

CHAT = (("user", "a"), ("assistant", "b"))
LISTED = [{"role": role, "content": content} for role, content in CHAT]
SHAREGPT = [
    {"from": "system", "value": "s"},
    {"from": "human", "value": "a", "weight": None},
    {"from": "gpt", "value": "b", "weight": 1},
]


@pytest.fixture
def read(tmp_path):
    """Return line and example of each record of a file of the given name and content."""

    def read_file(name: str, content: bytes | str | None = None) -> list[tuple[int, Example]]:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        findings = Findings(name)
        found = list(examples(open_records(locate(path)), findings))
        findings.raise_any()
        return found

    return read_file


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        ({"messages": LISTED}, CHAT),
        ({"messages": json.dumps(LISTED)}, CHAT),
        ({"conversations": LISTED}, CHAT),
        ({"conversations": SHAREGPT}, (("system", "s"), *CHAT)),
        ({"prompt": "a", "completion": "b"}, CHAT),
        ({"prompt": LISTED[:1], "completion": LISTED[1:]}, CHAT),
        ({"instruction": "a", "output": "b"}, CHAT),
        ({"instruction": "a", "input": "", "output": "b"}, CHAT),
        ({"instruction": "a", "input": "i", "output": "b"}, (("user", "a\n\ni"), CHAT[1])),
        ({"system": "s", "prompt": "a", "completion": "b"}, (("system", "s"), *CHAT)),
        ({"text": "left aside", "prompt": "a", "completion": "b"}, CHAT),
    ],
)
def test_every_kind_of_columns_becomes_one_conversation(fields, messages):
    assert to_example(fields) == Example(messages=messages)


def test_text_stays_text():
    assert to_example({"text": " a ", "url": "ignored"}) == Example(text=" a ")


@pytest.mark.parametrize(
    ("split", "held_out"), [("train", False), ("held_out", True), (None, None)]
)
def test_the_split_column_says_which_side_an_example_is_on(split, held_out):
    assert to_example({"text": "a", "split": split}).held_out is held_out


def test_the_hash_of_an_example_is_of_its_content_alone():
    assert Example(text="a").hash == Example(text="a", held_out=True).hash
    assert Example(text="a").hash != Example(text="b").hash
    assert Example(messages=CHAT).hash != Example(text="a").hash


def test_jsonl_passes_over_blank_lines_and_keeps_the_count(read):
    line, example = json.dumps({"text": "ä €"}, ensure_ascii=False), Example(text="ä €")
    assert read("x.jsonl", f"\n{line}\n\n{line}") == [(2, example), (4, example)]


def test_a_byte_order_mark_and_windows_line_ends_change_nothing(read):
    line = json.dumps({"prompt": "a", "completion": "b"})
    wanted = [(1, Example(messages=CHAT)), (2, Example(messages=CHAT))]
    assert read("x.jsonl", f"\ufeff{line}\r\n{line}\r\n") == wanted
    assert read("x.csv", "\ufeffprompt,completion\r\na,b\r\n") == [(2, Example(messages=CHAT))]
    assert read("x.txt", "\ufeffone\r\ntwo\r\n\r\nthree") == [
        (1, Example(text="one\ntwo")),
        (4, Example(text="three")),
    ]


def test_txt_is_cut_at_blank_lines_and_a_document_is_where_it_begins(read):
    found = read("x.txt", "\n\na\n b\n \n\t\n\nc\n")
    assert found == [(3, Example(text="a\n b")), (8, Example(text="c"))]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_understands_separators_quotes_and_line_breaks(read, separator):
    rows = ["prompt;completion", '"a;b";"line 1\nline 2"', 'say ""x"";""', '"say ""x""";y']
    content = "\n".join(rows).replace(";", separator)
    found = read("x.csv", content)
    told = [(line, [text for _, text in example.messages]) for line, example in found]
    assert told[0] == (2, [f"a{separator}b", "line 1\nline 2"])
    assert told[-1] == (5, ['say "x"', "y"])


def test_parquet_counts_rows_and_reads_nested_messages(read, tmp_path):
    table = pyarrow.table({"messages": [LISTED, None], "text": [None, "plain"]})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    assert read("x.parquet") == [(1, Example(messages=CHAT)), (2, Example(text="plain"))]


def test_names_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("a")
    assert "homelab-qa" in shipped_names()
    shipped = locate("homelab-qa")
    assert isinstance(shipped, LocalFile)
    assert shipped.path.is_file()
    assert isinstance(locate("mine.txt"), LocalFile)
    assert locate("owner/name") == HubDataset("owner/name", None)
    assert locate("owner/name:config") == HubDataset("owner/name", "config")
    assert locate("squad") == HubDataset("squad", None)
    with refuses(DataError, "theirs.txt"):
        locate("theirs.txt")
