"""Every error of a data set ends in one message that names file, line and cure."""

from __future__ import annotations

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest
from support.facts import assert_names, refuses
from support.tiny_model import make_tokenizer

from hearth.base.errors import DataError
from hearth.data.load import load_data

GOOD = json.dumps({"prompt": "Which rank is first?", "completion": "Rank 0."})
SETTINGS = {"sequence_length": 256, "packing": True, "held_out": 0.0, "seed": 1}


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture
def findings(tmp_path, tokenizer):
    """Return a function that gives `load_data`'s findings on a file of this name and content."""

    def load(name: str, content: bytes | str | None, **changes: object) -> list[str]:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        with pytest.raises(DataError) as caught:
            cache = tmp_path / "cache"
            load_data(path, tokenizer, cache=cache, say=lambda _: None, **SETTINGS | changes)
        assert not list(tmp_path.glob("cache/.*.unfinished")), "nothing half-done stays behind"
        return [finding.replace(f"{tmp_path}/", "") for finding in caught.value.findings]

    return load


def parquet(path, texts) -> bytes:
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array(texts, "string")}), path)
    return path.read_bytes()


def test_a_missing_file_is_named_with_the_one_that_was_meant_or_the_missing_folder(
    findings, tmp_path
):
    (tmp_path / "chats.jsonl").write_text(GOOD)
    (finding,) = findings("chat.jsonl", None)
    assert_names(finding, "chat.jsonl", "'chats.jsonl'")
    (finding,) = findings("nowhere/chat.jsonl", None)
    assert_names(finding, "nowhere/chat.jsonl", "folder nowhere")


def test_a_number_of_more_digits_than_python_reads_is_named_with_its_line(findings):
    (finding,) = findings("x.jsonl", f'{GOOD.rstrip()}\n{{"text": {"9" * 5000}}}\n')
    assert_names(finding, "x.jsonl:2", "4300")


@pytest.mark.parametrize("content", ["", "\n \n\n", "\ufeff", " " * 500])
@pytest.mark.parametrize("name", ["x.jsonl", "x.txt", "x.csv", "x.parquet"])
def test_an_empty_file_is_refused(findings, name, content):
    (finding,) = findings(name, content)
    assert_names(finding, name, "empty")


def test_a_parquet_file_that_is_torn_or_has_no_rows_is_named(findings, tmp_path):
    (finding,) = findings("p.parquet", parquet(tmp_path / "p.parquet", []))
    assert_names(finding, "p.parquet", "no rows")
    (finding,) = findings("p.parquet", parquet(tmp_path / "p.parquet", ["a"] * 100)[:200])
    assert_names(finding, "p.parquet", "cut short")


@pytest.mark.parametrize(
    ("place", "content", "facts"),
    [
        # Another format than the name says.
        ("x.jsonl", gzip.compress(GOOD.encode(), mtime=0), ["binary", "unpack"]),
        ("x.jsonl", GOOD.encode("utf-16-le"), ["UTF-16", "UTF-8"]),
        ("x.jsonl", GOOD.encode("utf-16")[:-1], ["UTF-16", "cut short"]),
        ("x.csv.gz", gzip.compress(GOOD.encode(), mtime=0), ["JSON lines", ".jsonl"]),
        ("x.jsonl.gz", gzip.compress(GOOD.encode() * 9, mtime=0)[:40], ["unpacked", "cut short"]),
        ("x.parquet", GOOD, ["parquet", "another format"]),
        ("x.txt", GOOD, ["JSON lines", ".jsonl"]),
        ("x.csv", GOOD, ["JSON lines", ".jsonl"]),
        ("x.jsonl:1", "prompt,completion\na,b\n", ["not JSON", "line 2"]),
        ("x.jsonl", f"[\n{GOOD}]", ["JSON array"]),
        # An ending that is not read.
        ("x.jsonl.gz", "something", ["unpacked"]),
        ("x.jsonl.zip", "something", ["unpack"]),
        ("x.parquet.gz", "something", ["unpack"]),
        ("x.docx", "something", [".jsonl", ".txt", ".csv", ".parquet"]),
        ("noending", "something", ["ending"]),
        # Content that cannot be read as what it is.
        ("x.json:2", '[\n{"a" "b"}]', ["JSON", "column 6"]),
        ("x.json:1", "17", ["a int", "list of objects"]),
        ("x.json:1", "[]", ["empty"]),
        ("x.json:2", f"[{GOOD}, 17]", ["bare value"]),
        ("x.json:1", '{"train": [{"text": "a"}], "test": [{"text": "b"}]}', ["test, train"]),
        ("x.jsonl:1", '{"text": "a", "text": "b"}', ["two members", "'text'"]),
        ("x.csv:1", "text,text\na,b\n", ["several columns", "text"]),
        ("x.csv:2", "sep=;\ntext;text\na;b\n", ["several columns", "text"]),
        ("x.csv:2", "text,n\ra,b,c\r", ["3 fields", "header 2"]),
        ("x.jsonl:3", f'{GOOD}\n\n{{"a": "a" "b": "b"}}\n{GOOD}\n', ["JSON", "column 11"]),
        ("x.txt", bytes(range(256)) * 20, ["binary"]),
        ("x.jsonl:2", GOOD.encode() + b"\ncaf\xe9 au lait\n", ["byte 4", "0xe9", "UTF-8"]),
        ("x.txt:2", b"text\ncaf\xe9 au lait\n", ["byte 4", "0xe9", "UTF-8"]),
        ("x.csv:3", b"text\nfine\ncaf\xe9 au lait\n", ["byte 4", "0xe9", "UTF-8"]),
        ("x.csv:4", 'prompt,completion\n"a\nb",c\nd,e,f\n', ["3 fields", "header 2"]),
        ("x.csv:3", 'text\nfine\n"never closed\nmore\n', ["csv", "unexpected end"]),
        (
            "x.csv:2",
            "frage,antwort\na,b\nc,d\n",
            ["frage, antwort", "columns=", "messages", "prompt + completion", "text", "line 3"],
        ),
        # Nothing to learn from.
        ("x.jsonl", json.dumps({"prompt": "a", "completion": " "}), ["blank"]),
        ("x.jsonl", json.dumps({"text": "a", "split": "held_out"}), ["held_out", "train"]),
    ],
)
def test_a_wrong_file_is_named_with_what_it_is_or_lacks(findings, place, content, facts):
    (finding,) = findings(place.partition(":")[0], content)
    assert finding.startswith(f"{place}: ")
    assert_names(finding, *facts)


def test_all_bad_lines_are_told_at_once_and_the_many_are_counted(findings):
    lines = [GOOD, "{", '"text"', "[1]", "17", *["{"] * 7, GOOD]
    told = findings("x.jsonl", "\n".join(lines))
    assert_names(told[0], "x.jsonl:2", "JSON", "6, 7, 8, 9, 10 and 2 more")
    assert_names(told[1], "x.jsonl:3", "a string")
    assert_names(told[2], "x.jsonl:4", "an array")
    assert_names(told[3], "x.jsonl:5", "bare value")


def test_a_file_in_another_encoding_is_one_finding_with_its_lines(findings):
    lines = [f"{'a' * number}caf\xe9" for number in range(20)]
    (finding,) = findings("x.txt", "\n\n".join(lines).encode("windows-1252"))
    assert_names(finding, "x.txt:1", "byte 4", "0xe9", "UTF-8", "3, 5, 7", "14 more")


@pytest.mark.parametrize("name", ["x.jsonl", "mine"])
def test_a_link_to_a_missing_file_is_named_with_where_it_leads(findings, tmp_path, name):
    (tmp_path / name).symlink_to(tmp_path / "gone.jsonl")
    (finding,) = findings(name, None)
    assert_names(finding, name, "gone.jsonl", "link")
    assert "did you mean" not in finding


def test_more_than_five_different_problems_are_counted(findings):
    lines = [json.dumps({f"column{number}": "x"}) for number in range(9)]
    told = findings("x.jsonl", "\n".join(lines))
    assert len(told) == 6
    assert_names(told[-1], "x.jsonl", "4 more lines")


USER = {"role": "user", "content": "x"}
ANSWER = {"role": "assistant", "content": "y"}
SYSTEM = {"role": "system", "content": "s"}
CALL = {"name": "f", "arguments": {}}


@pytest.mark.parametrize(
    ("record", "facts"),
    [
        ({"messages": "hello"}, ["messages", "is text"]),
        ({"messages": []}, ["messages", "a list"]),
        ({"messages": {"role": "user"}}, ["messages", "a list"]),
        ({"messages": ["hello"]}, ["message 1", "role", "content"]),
        ({"messages": [{"role": "user"}]}, ["message 1", "role", "content"]),
        ({"messages": [{"from": "human"}]}, ["message 1", "role", "content", "from"]),
        ({"messages": [USER | {"role": "narrator"}]}, ["message 1", "'narrator'", "assistant"]),
        ({"messages": [USER | {"role": ["user"]}]}, ["message 1", "role ['user']"]),
        ({"messages": [USER | {"role": None}]}, ["message 1", "role", "content"]),
        ({"messages": [{"from": ["gpt"], "value": "x"}]}, ["message 1", "role ['gpt']"]),
        ({"messages": [USER | {"from": "gpt"}]}, ["message 1", "role", "from", "differ"]),
        ({"messages": [USER | {"value": "y"}]}, ["message 1", "content", "value", "differ"]),
        ({"messages": [USER]}, ["no message", "assistant"]),
        ({"messages": [USER, USER | {"content": ["y"]}]}, ["message 2", "a list"]),
        ({"messages": [USER | {"content": None}]}, ["message 1", "null"]),
        ({"messages": [USER, {"role": "assistant", "content": None}]}, ["message 2", "null"]),
        ({"messages": [USER | {"content": [{"type": "image"}]}]}, ["part 1", "image", "text"]),
        ({"messages": [USER | {"content": [{"audio": "x"}]}]}, ["part 1", "audio", "text"]),
        ({"messages": [USER | {"weight": 1}]}, ["weight", "message 1", "user"]),
        ({"messages": [ANSWER | {"weight": 0.5}]}, ["weight", "message 1", "0.5"]),
        ({"messages": [ANSWER | {"loss": 0, "train": True}]}, ["loss", "train", "differ"]),
        ({"messages": [ANSWER | {"train_detail": [1]}]}, ["message 1", "train_detail", "weight"]),
        ({"messages": [ANSWER | {"thinking": "a", "thought": "b"}]}, ["thinking", "thought"]),
        ({"messages": [ANSWER | {"tool_calls": [{"id": "1"}]}]}, ["call 1", "message 1", "name"]),
        ({"messages": [ANSWER | {"function_call": CALL | {"arguments": "{x"}}]}, ["call 1", "{x"]),
        ({"messages": [ANSWER | {"tool_calls": [CALL | {"arguments": [1]}]}]}, ["call 1", "list"]),
        ({"messages": [USER | {"tool_calls": [CALL]}]}, ["message 1", "tool_calls", "user"]),
        ({"messages": [{"from": "function_call", "value": "f()"}]}, ["message 1", "JSON", "f()"]),
        ({"messages": [ANSWER], "tools": "[x"}, ["tools", "[x"]),
        ({"messages": [ANSWER], "tools": [{"type": "function"}]}, ["function 1", "tools", "name"]),
        ({"messages": [SYSTEM, ANSWER], "system": "t"}, ["system", "differ"]),
        ({"instruction": "a", "output": "b", "history": ["c"]}, ["turn 1", "history"]),
        ({"prompt": "a", "completion": "b", "label": False}, ["label", "objective=kto"]),
        (
            {"prompt": "a", "chosen": "b", "rejected": "c"},
            ["chosen", "rejected", "completion=chosen"],
        ),
        ({"text": 5}, ["text", "int"]),
        ({"prompt": "a", "completion": True}, ["completion", "true"]),
        ({"instruction": "a", "input": {"b": 1}, "output": "b"}, ["input", "object"]),
        ({"text": "x", "split": "test"}, ["split", "'test'", "'train'", "'held_out'"]),
        ({"text": "a\ud800b"}, ["text", "surrogate", "character 2"]),
    ],
)
def test_a_wrong_record_is_named_by_line_and_message_or_column(findings, record, facts):
    (finding,) = findings("x.jsonl", f"{GOOD}\n{json.dumps(record)}\n")
    assert_names(finding, "x.jsonl:2", *facts)


def test_all_examples_too_long_says_how_long_they_are(findings):
    longer = GOOD.replace("Rank 0.", "It is rank 0.")
    (finding,) = findings("x.jsonl", f"{longer}\n{GOOD}\n", sequence_length=16)
    facts = ("2 examples", "sequence_length 16", "shortest has 47", "longest 53")
    assert_names(finding, "x.jsonl", *facts)


def test_held_out_that_leaves_nothing_to_train_on_is_refused(findings):
    (finding,) = findings("x.jsonl", GOOD, held_out=0.5)
    assert_names(finding, "x.jsonl", "held_out 0.5", "1 example", "held_out to 0")


def test_a_template_that_refuses_a_conversation_is_told_by_line(findings, tokenizer, monkeypatch):
    template = "{{ raise_exception('roles must alternate') }}"
    monkeypatch.setattr(tokenizer, "chat_template", template)
    (finding,) = findings("x.jsonl", f"{GOOD}\n{GOOD}\n")
    assert_names(finding, "x.jsonl:1", "template", "alternate", "line 2")


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("own:er/na me", ["file", "Hub name"]),
        ("a/b/c", ["file", "Hub name"]),
        ("name:", ["file", "Hub name"]),
        ("homelab_qa", ["'homelab-qa'"]),
    ],
)
def test_a_name_of_neither_a_file_nor_a_data_set_is_refused(tokenizer, tmp_path, name, facts):
    with refuses(DataError, name, *facts):
        load_data(name, tokenizer, cache=tmp_path, **SETTINGS)


def test_a_cache_that_cannot_be_written_is_named(findings, tmp_path):
    (tmp_path / "cache").write_text("in the way")
    (finding,) = findings("x.jsonl", GOOD)
    assert finding.startswith("cache: ")
