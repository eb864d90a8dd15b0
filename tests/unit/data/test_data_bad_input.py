"""Every way in which a data set can be wrong ends in one message that names file, line and cure."""

from __future__ import annotations

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest
from support.tiny_model import make_tokenizer

from hearth.base.errors import DataError
from hearth.data.load import load_data

GOOD = json.dumps({"prompt": "Which rank is first?", "completion": "Rank 0."})


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
        settings = {"sequence_length": 256, "packing": True, "held_out": 0.0, "seed": 1} | changes
        with pytest.raises(DataError) as caught:
            load_data(path, tokenizer, cache=tmp_path / "cache", say=lambda _: None, **settings)
        assert not list(tmp_path.glob("cache/.*.unfinished")), "nothing half-done stays behind"
        return [finding.replace(f"{tmp_path}/", "") for finding in caught.value.findings]

    return load


def test_a_missing_file_is_named_with_the_file_that_was_meant(findings, tmp_path):
    (tmp_path / "chats.jsonl").write_text(GOOD)
    assert findings("chat.jsonl", None) == [
        "chat.jsonl: there is no such file (did you mean 'chats.jsonl'?); check the path"
    ]


def test_a_missing_folder_is_named(findings):
    (finding,) = findings("nowhere/chat.jsonl", None)
    assert finding == (
        "nowhere/chat.jsonl: there is no such file and no folder nowhere; check the path"
    )


def test_a_folder_is_refused_with_the_files_in_it(findings, tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "folder.jsonl" / "a.csv").write_text("text\nx\n")
    (finding,) = findings("folder.jsonl", None)
    assert finding == "folder.jsonl: this is a folder; give one of the files in it: a.csv"


@pytest.mark.parametrize("content", ["", "\n \n\n", "\ufeff", " " * 500])
@pytest.mark.parametrize("name", ["x.jsonl", "x.txt", "x.csv", "x.parquet"])
def test_an_empty_file_is_refused(findings, name, content):
    assert findings(name, content) == [f"{name}: this file is empty; there is nothing to train on"]


def test_a_parquet_file_without_rows_is_refused(findings, tmp_path):
    pyarrow.parquet.write_table(
        pyarrow.table({"text": pyarrow.array([], "string")}), tmp_path / "p.parquet"
    )
    assert findings("p.parquet", None) == [
        "p.parquet: this file has no rows; there is nothing to train on"
    ]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("x.jsonl", b"PAR1" + bytes(100), "the content is parquet (name it .parquet)"),
        ("x.jsonl", gzip.compress(GOOD.encode(), mtime=0), "the content is gzip (unpack it first)"),
        ("x.csv", b"PK\x03\x04" + bytes(50), "zip archive or office document"),
        ("x.txt", b"%PDF-1.7 etc", "the content is a PDF"),
        ("x.jsonl", GOOD.encode("utf-16"), "UTF-16 text (save it as UTF-8)"),
        ("x.parquet", GOOD.encode(), "the name says parquet, but the content is text"),
        ("x.txt", GOOD.encode(), "the content is JSON lines; name it .jsonl"),
        ("x.csv", GOOD.encode(), "the content is JSON lines; name it .jsonl"),
        ("x.jsonl", b"prompt,completion\na,b\n", "the content is csv; name it .csv"),
        ("x.jsonl", b"[\n" + GOOD.encode() + b"]", "one JSON array, not one JSON object a line"),
    ],
)
def test_another_format_than_the_name_says_is_recognised(findings, name, content, told):
    (finding,) = findings(name, content)
    assert finding.startswith(f"{name}: ")
    assert told in finding


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("x.json", "one object a line and name it .jsonl"),
        ("x.jsonl.gz", "unpack it first"),
        ("x.tsv", "name it .csv"),
        ("x.docx", "give a file that ends in .jsonl, .txt, .csv, .parquet"),
        ("noending", "a file without an ending is not read"),
    ],
)
def test_an_ending_that_is_not_read_is_refused_with_the_way_out(findings, name, told):
    (finding,) = findings(name, "something")
    assert finding.startswith(f"{name}: ")
    assert told in finding


def test_a_torn_parquet_file_is_named(findings, tmp_path):
    path = tmp_path / "p.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"] * 100}), path)
    path.write_bytes(path.read_bytes()[:200])
    (finding,) = findings("p.parquet", None)
    assert finding.startswith("p.parquet: this parquet file cannot be read (")
    assert "cut short" in finding


def test_malformed_json_is_named_by_line_and_column(findings):
    (finding,) = findings("x.jsonl", f'{GOOD}\n\n{{"prompt": "a" "completion": "b"}}\n{GOOD}\n')
    assert finding == (
        "x.jsonl:3: this is not JSON (Expecting ',' delimiter, column 16); each line must be one "
        "JSON object"
    )


def test_all_bad_lines_are_told_at_once_and_the_many_are_counted(findings):
    lines = [GOOD, "{", '"text"', "[1]", "17", *["{"] * 7, GOOD]
    told = findings("x.jsonl", "\n".join(lines))
    assert told[0].startswith("x.jsonl:2: this is not JSON (")
    assert told[0].endswith("(also lines 6, 7, 8, 9, 10 and 2 more)")
    assert told[1] == "x.jsonl:3: this is a string; each line must be one JSON object"
    assert told[2] == "x.jsonl:4: this is an array; each line must be one JSON object"
    assert told[3] == "x.jsonl:5: this is a bare value; each line must be one JSON object"


def test_more_than_five_different_problems_are_counted(findings):
    lines = [json.dumps({f"column{number}": "x"}) for number in range(9)]
    told = findings("x.jsonl", "\n".join(lines))
    assert len(told) == 6
    assert told[-1] == "x.jsonl: and 4 more lines with problems"


def test_no_usable_column_lists_what_is_there_and_what_is_read(findings):
    assert findings("x.csv", "question,answer\na,b\nc,d\n") == [
        "x.csv:2: no usable columns (found question, answer); use messages, conversations, "
        "prompt + completion, instruction (+ input) + output, or text (also line 3)"
    ]


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ("hello", "messages is text, but not a JSON list of messages"),
        ([], "messages must be a list of {role, content}"),
        ({"role": "user"}, "messages must be a list of {role, content}"),
        (["hello"], "message 1 must be an object with role and content"),
        ([{"role": "user"}], "message 1 must be an object with role and content"),
        (
            [{"role": "bot", "content": "x"}],
            "message 1 has the role 'bot'; use system, user, assis",
        ),
        ([{"role": ["user"], "content": "x"}], "message 1 has the role ['user']"),
        ([{"from": ["gpt"], "value": "x"}], "message 1 has the role ['gpt']"),
        (
            [{"from": "tool", "value": "x"}],
            "message 1 has the role 'tool'; use system, user, assis",
        ),
        ([{"from": "human"}], "message 1 must be an object with role and content, or from and"),
        ([{"role": "user", "content": "x"}], "no message has the role assistant"),
        (
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": ["y"]}],
            "the content of message 2 is a list, not text",
        ),
        (
            [{"role": "user", "content": None}, {"role": "assistant", "content": "y"}],
            "the content of message 1 is null, not text",
        ),
    ],
)
def test_wrong_messages_are_named_by_line_and_message(findings, messages, told):
    (finding,) = findings("x.jsonl", f"{GOOD}\n{json.dumps({'messages': messages})}\n")
    assert finding.startswith("x.jsonl:2: ")
    assert told in finding


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"text": 5}, "text is a int, not text"),
        ({"prompt": "a", "completion": True}, "completion is true or false"),
        ({"instruction": "a", "input": {}, "output": "b"}, "input is an object"),
        ({"text": "x", "split": "test"}, "split is 'test'; use 'train' or 'held_out'"),
        ({"text": "a\ud800b"}, "text has half a surrogate pair at character 2"),
    ],
)
def test_wrong_types_are_named_by_line_and_column(findings, record, told):
    (finding,) = findings("x.jsonl", f"{GOOD}\n{json.dumps(record)}\n")
    assert finding.startswith("x.jsonl:2: ")
    assert told in finding


def test_binary_garbage_is_recognised(findings):
    (finding,) = findings("x.txt", bytes(range(256)) * 20)
    assert finding.startswith("x.txt: this is binary data, not text;")


@pytest.mark.parametrize("name", ["x.jsonl", "x.txt", "x.csv"])
def test_a_line_that_is_not_utf8_is_named_with_the_byte(findings, name):
    good = {"x.jsonl": GOOD, "x.txt": "text", "x.csv": "text\nfine"}[name].encode()
    told = findings(name, good + b"\ncaf\xe9 au lait\n")
    line = good.count(b"\n") + 2
    assert told[0] == (
        f"{name}:{line}: byte 4 of this line (0xe9) is not UTF-8; save the file as UTF-8"
    )


def test_a_csv_row_of_another_width_is_named(findings):
    (finding,) = findings("x.csv", 'prompt,completion\n"a\nb",c\nd,e,f\n')
    assert finding.startswith("x.csv:4: this row has 3 fields and the header 2;")


def test_an_open_quote_in_csv_is_named_by_the_line_it_opens_in(findings):
    (finding,) = findings("x.csv", 'text\nfine\n"never closed\nmore\n')
    assert finding.startswith("x.csv:3: this row is not csv (unexpected end of data); check its")


def test_all_examples_too_long_says_how_long_they_are(findings):
    (finding,) = findings("x.jsonl", f"{GOOD}\n{GOOD}\n", sequence_length=16)
    assert finding == (
        "x.jsonl: all 2 examples are longer than sequence_length 16 (the shortest has 47 tokens, "
        "the longest 47); raise sequence_length or shorten the examples"
    )


def test_blank_answers_only_leave_nothing_to_learn(findings):
    assert findings("x.jsonl", json.dumps({"prompt": "a", "completion": " "})) == [
        "x.jsonl: there is nothing to train on: every text or answer is blank"
    ]


def test_held_out_that_leaves_nothing_to_train_on_is_refused(findings):
    assert findings("x.jsonl", GOOD, held_out=0.5) == [
        "x.jsonl: held_out 0.5 leaves nothing to train on: the file has 1 example; add examples, "
        "or set held_out to 0"
    ]


def test_a_file_that_holds_out_all_is_refused(findings):
    (finding,) = findings("x.jsonl", json.dumps({"text": "a", "split": "held_out"}))
    assert finding == "x.jsonl: every example is marked held_out; mark some as train"


def test_a_template_that_refuses_a_conversation_is_told_by_line(findings, tokenizer, monkeypatch):
    template = "{{ raise_exception('roles must alternate') }}"
    monkeypatch.setattr(tokenizer, "chat_template", template)
    assert findings("x.jsonl", f"{GOOD}\n{GOOD}\n") == [
        "x.jsonl:1: the model's chat template refuses this conversation (roles must alternate) "
        "(also line 2)"
    ]


@pytest.mark.parametrize("name", ["own:er/na me", "a/b/c", "name:"])
def test_what_is_neither_file_nor_hub_name_is_refused(tokenizer, tmp_path, name):
    with pytest.raises(DataError, match="neither a file nor a Hub name"):
        load_data(
            name, tokenizer, sequence_length=8, packing=True, held_out=0, seed=1, cache=tmp_path
        )


def test_a_misspelt_shipped_name_is_corrected(tokenizer, tmp_path):
    with pytest.raises(DataError, match="did you mean 'homelab-qa'"):
        load_data(
            "homelab_qa",
            tokenizer,
            sequence_length=8,
            packing=True,
            held_out=0,
            seed=1,
            cache=tmp_path,
        )


def test_a_cache_that_cannot_be_written_is_named(findings, tmp_path):
    (tmp_path / "cache").write_text("in the way")
    (finding,) = findings("x.jsonl", GOOD)
    assert finding.startswith("cache: the tokens cannot be stored here (")
