"""Every error in data of preferences is one message with file, line and cure; the rest is noted."""

from __future__ import annotations

import json

import pytest
from support.facts import assert_names
from support.tiny_model import make_tokenizer

from hearth.base.errors import DataError
from hearth.data.load import load_data
from hearth.data.mixture import load_mixture

PAIR = {"prompt": "Which rank is first?", "chosen": "Rank 0.", "rejected": "Rank 1."}
JUDGED = {"prompt": "Which rank is first?", "completion": "Rank 0.", "label": True}
BAD = JUDGED | {"completion": "Rank 1.", "label": False}
SFT = {"prompt": "Which rank is first?", "completion": "Rank 0."}
TEXT = {"text": "Rank 0 is first."}
USER = {"role": "user", "content": "x"}
GOOD, POOR = ({"role": "assistant", "content": text} for text in "yz")
OPTIONS = {"sequence_length": 256, "packing": True, "held_out": 0.0, "seed": 1}


@pytest.fixture
def load(tmp_path):
    """Return a function that loads records, those of x.jsonl, under an objective."""

    def load_records(records: list[dict], objective: str, **changes: object):
        path = tmp_path / "x.jsonl"
        path.write_text("\n".join(map(json.dumps, records)))
        options = OPTIONS | {"cache": tmp_path / "cache", "say": lambda _: None} | changes
        return load_data(path, make_tokenizer(), objective=objective, **options)

    return load_records


@pytest.fixture
def findings(load, tmp_path):
    """Return a function that gives the findings on records under an objective."""

    def found(*args: object, **changes: object) -> list[str]:
        with pytest.raises(DataError) as caught:
            load(*args, **changes)
        return [finding.replace(f"{tmp_path}/", "") for finding in caught.value.findings]

    return found


def pair(**changes: object) -> dict:
    return {name: value for name, value in (PAIR | changes).items() if value is not ...}


@pytest.mark.parametrize(
    ("objective", "record", "facts"),
    [
        # A side is missing, or is none.
        ("dpo", pair(rejected=...), ["rejected", "missing", "chosen"]),
        ("dpo", pair(chosen=None), ["chosen", "missing", "rejected"]),
        ("kto", pair(chosen=...), ["chosen", "missing", "rejected"]),
        ("dpo", pair(chosen=5), ["chosen", "int"]),
        ("dpo", pair(rejected=True), ["rejected", "true or false"]),
        ("dpo", pair(rejected=[]), ["rejected", "list"]),
        ("orpo", pair(rejected=["Rank 1."]), ["rejected", "message 2", "role"]),
        ("dpo", pair(rejected=[{"role": "narrator", "content": "z"}]), ["rejected", "'narrator'"]),
        ("dpo", pair(chosen=[GOOD | {"content": None}]), ["chosen", "message 2", "null"]),
        ("dpo", pair(rejected=[{"role": "tool", "content": "z"}]), ["rejected", "assistant"]),
        ("dpo", pair(chosen="a\ud800b"), ["chosen", "surrogate"]),
        ("dpo", pair(prompt=5), ["prompt", "int"]),
        ("dpo", pair(prompt=[USER | {"role": 1}]), ["message 1", "role 1"]),
        ("dpo", pair(split="test"), ["split", "'test'", "held_out"]),
        ("dpo", pair(tools="[x"), ["tools", "[x"]),
        # The sides do not answer one question.
        ("dpo", pair(prompt=...), ["chosen", "no question", "prompt"]),
        ("kto", pair(prompt=...), ["chosen", "no question", "prompt"]),
        (
            "dpo",
            {"chosen": [USER, GOOD], "rejected": [USER | {"content": "w"}, POOR]},
            ["message 1", "user", "same question"],
        ),
        (
            "dpo",
            {"chosen": [USER, GOOD, USER, GOOD], "rejected": [USER, GOOD, POOR | USER, POOR]},
            None,
        ),
        (
            "dpo",
            {"chosen": [USER, GOOD, USER, GOOD], "rejected": [USER, GOOD, POOR]},
            ["message 3", "user", "same question"],
        ),
        ("dpo", {"chosen": [USER, GOOD], "rejected": "z"}, ["rejected", "no question"]),
        ("dpo", {"chosen": [USER, GOOD], "rejected": [USER]}, ["rejected", "assistant"]),
        (
            "dpo",
            {
                "prompt": [USER | {"content": "w"}],
                "chosen": [USER, GOOD],
                "rejected": [USER, POOR],
            },
            ["prompt", "begin differently", "remove"],
        ),
        # Labels.
        ("kto", JUDGED | {"label": "good"}, ["label", "'good'", "true", "false"]),
        ("kto", JUDGED | {"label": 2}, ["label", "2", "true", "false"]),
        ("kto", JUDGED | {"label": [True]}, ["label", "[True]", "true"]),
        ("kto", JUDGED | {"label": None}, ["no label", "objective=sft"]),
        ("kto", JUDGED | {"label": None, "kto_tag": -1}, ["kto_tag", "-1"]),
        ("kto", {"messages": [USER], "label": True}, ["assistant"]),
        ("kto", {"text": "Rank 0.", "label": True}, ["text", "prompt and completion"]),
        # Data of another objective.
        ("dpo", SFT, ["one answer", "objective=dpo", "chosen", "objective=sft"]),
        ("orpo", {"messages": [USER, GOOD]}, ["one answer", "objective=orpo", "objective=sft"]),
        ("dpo", JUDGED, ["label", "objective=kto"]),
        ("orpo", {"messages": [USER, GOOD], "label": 0}, ["label", "objective=kto"]),
        ("kto", SFT, ["no label", "objective=kto", "objective=sft"]),
        ("dpo", TEXT, ["plain text", "objective=dpo", "objective=sft"]),
        ("kto", TEXT, ["plain text", "objective=kto", "objective=sft"]),
        ("dpo", {"frage": "a", "gut": "b"}, ["frage, gut", "chosen", "columns="]),
        ("kto", {"frage": "a", "gut": "b"}, ["frage, gut", "label", "columns="]),
        ("sft", PAIR, ["chosen", "objective=dpo", "columns=completion=chosen"]),
        ("sft", BAD, ["label", "objective=kto"]),
    ],
)
def test_a_wrong_record_is_one_finding_with_its_line(findings, load, objective, record, facts):
    good = {"sft": [SFT], "kto": [JUDGED, BAD]}.get(objective, [PAIR, PAIR])
    records = [*good, record, *good]
    if facts is None:
        assert load(records, objective).report.examples == len(records)
        return
    (finding,) = findings(records, objective)
    assert_names(finding, f"x.jsonl:{len(good) + 1}: ", *facts)


def test_all_wrong_records_are_named_at_once(findings):
    found = findings([pair(rejected=...), PAIR, SFT, pair(prompt=...), SFT], "dpo")
    assert_names(found[0], "x.jsonl:1")
    assert_names(found[1], "x.jsonl:3", "also line 5")
    assert_names(found[2], "x.jsonl:4")


@pytest.mark.parametrize(
    ("record", "facts"),
    [
        (pair(rejected="Rank 0."), ["left out", "equal"]),
        (pair(chosen=""), ["left out", "blank"]),
        (pair(rejected=" \n"), ["left out", "blank"]),
        ({"chosen": [USER, GOOD], "rejected": [USER, GOOD, POOR]}, ["left out", "blank"]),
        (pair(rejected=[POOR | {"weight": 0}]), ["left out", "blank"]),
        (pair(rejected="Rank  0."), ["white space"]),
        (pair(rejected="Rank 0. It is first."), ["beginning", "length"]),
    ],
)
def test_pairs_that_teach_nothing_are_left_out_and_doubtful_ones_noted(
    load, findings, record, facts
):
    data = load([PAIR, record], "dpo")
    left_out = facts[0] == "left out"
    assert data.report.examples == 2 - left_out
    (note,) = (each for each in data.report.notes if "line" in each)
    assert_names(note, *facts, ": 1 (line 2)")
    if left_out:
        (finding,) = findings([record], "dpo")
        assert_names(finding, "x.jsonl", "nothing to train on", *facts, "line 1")


def test_a_pair_that_is_too_long_is_left_out_whole(load, findings):
    long = pair(chosen="first " * 30)
    data = load([PAIR, long, PAIR], "orpo")
    assert data.report.examples == 2
    assert_names(data.report.notes[0], "sequence_length 256", ": 1 (line 2)")
    (finding,) = findings([long] * 2, "dpo")
    assert_names(finding, "all 2 pairs", "sequence_length 256")


def test_both_answers_of_a_pair_are_held_out_or_none(load, findings):
    data = load([pair(prompt=f"{n}?") for n in range(40)], "dpo", held_out=0.3)
    assert data.train.liked.tolist() == [True, False] * data.report.examples
    assert data.held_out.liked.tolist() == [True, False] * data.report.held_out_examples
    assert data.report.examples + data.report.held_out_examples == 40
    question = data.question()
    assert (question.text[-1], question.expected) == ("?", "Rank 0.")
    (finding,) = findings([PAIR], "dpo", held_out=0.5)
    assert_names(finding, "held_out 0.5", "1 pair")


def test_the_held_out_question_is_one_with_an_answer_to_prefer(load):
    judged = [
        {"prompt": f"{n}?", "completion": f"answer {n}", "label": n > 2, "split": "held_out"}
        for n in range(6)
    ]
    data = load([JUDGED, BAD, *judged], "kto")
    assert (data.question().text, data.question().expected) == ("3?", "answer 3")


def test_labels_that_are_all_alike_are_refused(findings, load, tmp_path):
    (finding,) = findings([JUDGED] * 3, "kto")
    assert_names(finding, "x.jsonl", "all 3 answers", "label true", "objective=sft")
    (finding,) = findings([BAD] * 2, "kto")
    assert_names(finding, "x.jsonl", "all 2 answers", "label false")
    with pytest.raises(DataError):  # marked as held out are all to avoid
        load([JUDGED | {"split": "train"}, BAD | {"split": "held_out"}], "kto")
    for name, record in (("good", JUDGED), ("bad", BAD)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record))
    options = OPTIONS | {"cache": tmp_path / "cache", "say": lambda _: None}
    paths = [tmp_path / f"{name}.jsonl" for name in ("good", "bad")]
    mixed = load_mixture(dict.fromkeys(paths, 1), make_tokenizer(), objective="kto", **options)
    assert mixed.train.liked.tolist() == [True, False]
    with pytest.raises(DataError):
        load_mixture({paths[0]: 1}, make_tokenizer(), objective="kto", **options)


@pytest.mark.parametrize(("good", "bad"), [(9, 1), (1, 9)])
def test_lengths_that_tell_the_answers_apart_are_noted_with_figures(load, good, bad):
    records = [pair(prompt=f"{n}?", chosen="x" * good, rejected="y" * bad) for n in range(4)]
    notes = load(records, "dpo").report.notes
    assert_names(notes[0], "length", f"{good + 1} tokens", f"{bad + 1} in")  # each with its end
    even = [pair(prompt=f"{n}?", chosen="x" * 9, rejected="y" * 8) for n in range(4)]
    assert not load(even, "dpo").report.notes


def test_a_template_that_writes_the_question_in_two_ways_is_a_finding(load, tmp_path, monkeypatch):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = (
        "{{ messages | length }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    path = tmp_path / "x.jsonl"
    records = [PAIR, {"chosen": [USER, GOOD], "rejected": [USER, POOR, USER, POOR]}]
    path.write_text("\n".join(map(json.dumps, records)))
    with pytest.raises(DataError) as caught:
        load_data(path, tokenizer, objective="dpo", cache=tmp_path, say=lambda _: None, **OPTIONS)
    assert_names(caught.value.findings[0], "x.jsonl:2", "template", "two")
