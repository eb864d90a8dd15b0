"""The same examples come out of every format, each with its line."""

from __future__ import annotations

import contextlib
import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.facts import refuses

from hearth.base.errors import DataError
from hearth.data.columns import to_example
from hearth.data.documents import examples
from hearth.data.findings import Findings
from hearth.data.formats import open_records
from hearth.data.locate import SUFFIXES, HubDataset, LocalFile, locate, shipped_names
from hearth.data.messages import Example, Message

CHAT = (Message("user", "a"), Message("assistant", "b"))
SYSTEM = Message("system", "s")
LISTED = [{"role": message.role, "content": message.content} for message in CHAT]
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
        ({"conversations": SHAREGPT}, (SYSTEM, *CHAT)),
        ({"prompt": "a", "completion": "b"}, CHAT),
        ({"prompt": LISTED[:1], "completion": LISTED[1:]}, CHAT),
        ({"instruction": "a", "output": "b"}, CHAT),
        ({"instruction": "a", "input": "", "output": "b"}, CHAT),
        ({"instruction": "a", "input": "i", "output": "b"}, (Message("user", "a\n\ni"), CHAT[1])),
        ({"system": "s", "prompt": "a", "completion": "b"}, (SYSTEM, *CHAT)),
    ],
)
def test_every_kind_of_columns_becomes_one_conversation(fields, messages):
    assert to_example(fields) == Example(messages=messages)


def test_text_stays_text():
    assert to_example({"text": " a "}) == Example(text=" a ")


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
    told = [(line, [each.content for each in example.messages]) for line, example in found]
    assert told[0] == (2, [f"a{separator}b", "line 1\nline 2"])
    assert told[-1] == (5, ['say "x"', "y"])


def test_parquet_counts_rows_and_reads_nested_messages(read, tmp_path):
    table = pyarrow.table({"messages": [LISTED, None], "text": [None, "plain"]})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    assert read("x.parquet") == [(1, Example(messages=CHAT)), (2, Example(text="plain"))]


def test_members_that_other_rows_have_are_absent_in_a_row_of_parquet(read, tmp_path):
    calling = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    result = {"role": "tool", "content": "3", "tool_calls": None}
    turns = [[LISTED[0], calling, result], [{"from": "human", "value": "a"}, LISTED[1]]]
    pyarrow.parquet.write_table(pyarrow.table({"messages": turns}), tmp_path / "x.parquet")
    call = Message("assistant", calls=({"name": "f", "arguments": {}},))
    assert read("x.parquet") == [
        (1, Example((CHAT[0], call, Message("tool", "3")))),
        (2, Example(CHAT)),
    ]


def test_two_columns_of_one_name_in_parquet_are_refused(read, tmp_path):
    table = pyarrow.table([pyarrow.array(["a"])] * 2, names=["text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    with refuses(DataError, "x.parquet", "text"):
        read("x.parquet")


PAIR = {"prompt": "a", "completion": "b"}
ROWS = [PAIR, {"messages": LISTED}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
BOTH = [(1, Example(CHAT)), (2, Example(CHAT))]


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("x.ndjson", LINES, BOTH),
        ("x.json", LINES, BOTH),
        ("x.json", json.dumps(ROWS), BOTH),
        ("x.json", json.dumps(ROWS, indent=1).replace("\n", "\r\n"), BOTH),
        ("x.json", json.dumps({"version": "1", "data": ROWS}), BOTH),
        ("x.json", json.dumps({"conversations": ROWS}), BOTH),
        ("x.json", json.dumps({"features": [{}], "rows": [{"row_idx": 0, "row": PAIR}]}), BOTH[:1]),
        ("x.json", json.dumps({"prompt": ["a", "a"], "completion": ["b", "b"]}), BOTH),
        ("x.json", json.dumps({"messages": LISTED}), BOTH[:1]),
        ("x.json", json.dumps(PAIR), BOTH[:1]),
        ("x.json", json.dumps({"messages": [LISTED, LISTED]}), BOTH),
        ("x.tsv", "prompt\tcompletion\na\tb\n", [(2, BOTH[0][1])]),
        ("x.csv", "sep=;\nprompt;completion\na;b\n", [(3, BOTH[0][1])]),
        ("x.csv", "sep=|\r\nprompt|completion\r\na|b\r\n", [(3, BOTH[0][1])]),
        ("x.csv", 'prompt,completion\r"a",b\ra,b\r', [(2, BOTH[0][1]), (3, BOTH[0][1])]),
        ("x.csv", 'prompt,"completion\n"\na,b\n', [(3, BOTH[0][1])]),
        ("x.csv", ",prompt,completion,,\n0,a,b,,\n", [(2, Example(CHAT, unused=("column 1",)))]),
        ("x.txt", "a\rb\r\rc", [(1, Example(text="a\nb")), (4, Example(text="c"))]),
        ("x.jsonl", LINES.replace("\n", "\r"), BOTH),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_files_as_people_have_them_are_read(read, name, content, found, packed, encoding):
    bytes_ = content.encode(encoding)
    if packed:
        assert read(f"{name}.gz", gzip.compress(bytes_)) == found
    else:
        assert read(name, bytes_) == found


def test_a_line_that_cannot_be_decoded_does_not_shift_the_numbers(read, tmp_path):
    rows = b"text\ngood\ncaf\xe9\nbad,row\n"
    findings = Findings("x.csv")
    (tmp_path / "x.csv").write_bytes(rows)
    list(examples(open_records(locate(tmp_path / "x.csv")), findings))
    with pytest.raises(DataError) as caught:
        findings.raise_any()
    assert [each.partition(": ")[0] for each in caught.value.findings] == ["x.csv:3", "x.csv:4"]


@given(st.text(max_size=200), st.sampled_from(SUFFIXES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_under_any_name_is_records_or_findings(tmp_path, text, suffix):
    path = tmp_path / f"x{suffix}"
    content = text.encode("utf-8")
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    with contextlib.suppress(DataError):
        list(examples(open_records(locate(path)), Findings(path.name)))


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "text", "row", "row_idx", "role"]), inner)
    ),
)


@given(JSON, st.binary(max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_is_records_or_findings(tmp_path, content, end):
    for name in ("x.json", "x.jsonl"):
        (tmp_path / name).write_bytes(json.dumps(content).encode() + end)
        with contextlib.suppress(DataError):
            list(examples(open_records(locate(tmp_path / name)), Findings(name)))


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
