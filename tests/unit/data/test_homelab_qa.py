"""The shipped data set: its format, its held-out part, and that no example repeats another."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from pathlib import Path

DATASET = Path(__file__).parents[3] / "training" / "datasets" / "homelab-qa.jsonl"
BLOCK = 10  # lines on one topic; one of them is held out

# Just above what the data set reaches (0.56, 0.21). A question or answer that was only
# reworded lies far above: see the last test.
MOST_ALIKE_QUESTIONS = 0.60
MOST_SHARED_PHRASES = 0.25


def examples() -> list[dict]:
    return [json.loads(line) for line in DATASET.read_text(encoding="utf-8").splitlines()]


def question(example: dict) -> str:
    return example["messages"][0]["content"]


def answer(example: dict) -> str:
    return example["messages"][1]["content"]


def words(text: str) -> list[str]:
    """Lower case, without punctuation; names such as `lora_alpha` and `5090` stay whole."""
    return re.findall(r"[a-z0-9_]+", text.lower())


# Words that most questions share and that say nothing of their subject.
COMMON = words(
    "a about all an and are be can do does for from get have how i if in is it me mean means my no"
    " not of on one or should that the there this to use was what when where which why with"
)


def subject(text: str) -> set[str]:
    return set(words(text)).difference(COMMON)


def phrases(text: str) -> set[tuple[str, ...]]:
    """All runs of three words."""
    found = words(text)
    return set(zip(found, found[1:], found[2:], strict=False))


def likeness(one: set, other: set) -> float:
    """Jaccard: the shared part of all that either holds, 0 to 1."""
    return len(one & other) / len(one | other) if one or other else 1.0


def too_alike(texts: list[str], features, bound: float) -> list[str]:
    """Name every pair of texts whose features are more alike than `bound`."""
    sets = [features(text) for text in texts]
    return [
        f"lines {i + 1} and {j + 1}: {likeness(sets[i], sets[j]):.2f}: {texts[i]!r} / {texts[j]!r}"
        for i, j in itertools.combinations(range(len(texts)), 2)
        if likeness(sets[i], sets[j]) > bound
    ]


def test_every_line_is_a_question_and_its_answer_in_style() -> None:
    for number, example in enumerate(examples(), start=1):
        assert set(example) == {"messages", "split"}, f"line {number}"
        assert [set(message) for message in example["messages"]] == [{"role", "content"}] * 2
        assert [message["role"] for message in example["messages"]] == ["user", "assistant"]
        assert example["split"] in {"train", "held_out"}, f"line {number}"
        for text in (question(example), answer(example)):
            assert text and text == " ".join(text.split()), f"line {number}"
            assert text.count("`") % 2 == 0, f"line {number}"
        assert 10 <= len(question(example)) <= 200, f"line {number}"
        assert 25 <= len(answer(example).split()) <= 90, f"line {number}"
        assert answer(example).endswith("."), f"line {number}"


def test_one_line_of_every_ten_is_held_out() -> None:
    sides = [example["split"] for example in examples()]
    assert len(sides) >= 250 and len(sides) % BLOCK == 0
    for start in range(0, len(sides), BLOCK):
        held_out = sides[start : start + BLOCK].count("held_out")
        assert held_out == 1, f"lines {start + 1} to {start + BLOCK}: {held_out} held out"


def test_the_file_is_plain_text() -> None:
    raw = DATASET.read_bytes()
    assert raw.endswith(b"}\n") and b"\r" not in raw and b"\n\n" not in raw
    text = raw.decode("utf-8")
    assert unicodedata.normalize("NFC", text) == text
    odd = {c for c in text if c != "\n" and not 32 <= ord(c) < 127} - set("×−…")  # noqa: RUF001
    assert not odd


def test_no_two_questions_ask_the_same() -> None:
    assert not too_alike([question(e) for e in examples()], subject, MOST_ALIKE_QUESTIONS)


def test_no_two_answers_say_the_same() -> None:
    assert not too_alike([answer(e) for e in examples()], phrases, MOST_SHARED_PHRASES)


def test_no_held_out_sentence_is_trained_on() -> None:
    def sentences(side: str) -> set[str]:
        return {
            sentence
            for example in examples()
            if example["split"] == side
            for sentence in re.split(r"(?<=[.:;]) ", answer(example))
        }

    assert not sentences("held_out") & sentences("train")


def test_a_reworded_example_would_be_found() -> None:
    asked = ["How do I give a faster node more work?", "Can I give more work to the faster node?"]
    said = [
        "Start the run again with `resume` set to its name. The ranks agree on the newest whole "
        "checkpoint that any node holds and share it.",
        "Set `resume` to the name of the run and start it again. The ranks agree on the newest "
        "whole checkpoint that any node holds, and they share it.",
    ]
    assert too_alike(asked, subject, MOST_ALIKE_QUESTIONS)
    assert too_alike(said, phrases, MOST_SHARED_PHRASES)
