"""The forms in which data sets write preferences, and which of their messages are learned."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.data.columns import NAMES
from hearth.data.findings import Problem
from hearth.data.messages import Example, Message
from hearth.data.preferences import to_preferences
from hearth.data.records import renamed

ASK, GOOD, BAD = Message("user", "x"), Message("assistant", "y"), Message("assistant", "z")
EARLIER = replace(GOOD, content="w", learned=False)
TURNS = {"x": ("user", "human"), "y": ("assistant", "gpt"), "z": ("assistant", "gpt")}
TURNS["w"] = TURNS["y"]


def chat(texts: str) -> list[dict[str, str]]:
    return [{"role": TURNS[text][0], "content": text} for text in texts]


def shared(texts: str) -> list[dict[str, str]]:
    return [{"from": TURNS[text][1], "value": text} for text in texts]


LONG = (ASK, EARLIER, ASK)
BOTH = {"chosen": "y", "rejected": "z"}


@pytest.mark.parametrize(
    ("fields", "head"),
    [
        (BOTH | {"prompt": "x"}, (ASK,)),
        (BOTH | {"question": "x"}, (ASK,)),
        (BOTH | {"query": "x"}, (ASK,)),
        (BOTH | {"instruction": "a", "input": "b"}, (Message("user", "a\n\nb"),)),
        (BOTH | {"prompt": "x", "system": "s"}, (Message("system", "s"), ASK)),  # Orca
        (BOTH | {"prompt": "x", "history": [["x", "w"]]}, LONG),
        (BOTH | {"prompt": chat("xwx")}, LONG),
        ({"prompt": chat("x"), "chosen": chat("y"), "rejected": chat("z")}, (ASK,)),  # TRL
        ({"prompt": "x", "chosen": json.dumps(chat("y")), "rejected": chat("z")}, (ASK,)),
        ({"chosen": chat("xy"), "rejected": chat("xz")}, (ASK,)),
        ({"chosen": shared("xwxy"), "rejected": chat("xwxz")}, LONG),
        ({"chosen": json.dumps(chat("xy")), "rejected": json.dumps(chat("xz"))}, (ASK,)),
        # UltraFeedback
        (
            {"prompt": "x", "chosen": chat("xy"), "rejected": chat("xz"), "messages": chat("xy")},
            (ASK,),
        ),
        ({"chosen": chat("xy"), "rejected": chat("xz"), "messages": chat("xy")}, (ASK,)),
        ({"prompt": chat("x"), "chosen": chat("xy"), "rejected": chat("xz")}, (ASK,)),
        # LLaMA-Factory
        (
            {
                "conversations": shared("xwx"),
                "chosen": shared("y")[0],
                "rejected": shared("z")[0],
            },
            LONG,
        ),
        # HH-RLHF
        (
            {
                "chosen": "\n\nHuman: x\n\nAssistant: w\n\nHuman: x\n\nAssistant: y",
                "rejected": "\n\nHuman: x\n\nAssistant: w\n\nHuman: x\n\nAssistant: z",
            },
            LONG,
        ),
    ],
)
def test_a_pair_has_one_head_that_is_not_learned_and_an_answer_each(fields, head):
    for objective in ("dpo", "orpo", "kto"):
        chosen, rejected = to_preferences(fields, objective)
        assert (chosen.messages, chosen.liked) == ((*head, GOOD), True)
        assert (rejected.messages, rejected.liked) == ((*head, BAD), False)
        assert chosen.unused == rejected.unused == (("messages",) if "messages" in fields else ())


def test_all_answers_behind_the_head_are_learned():
    chosen, rejected = to_preferences({"chosen": chat("xyxy"), "rejected": chat("xzxz")}, "dpo")
    assert chosen.messages == (ASK, GOOD, ASK, GOOD)
    assert rejected.messages == (ASK, BAD, ASK, BAD)


def test_what_is_not_read_is_named_once_for_each_side():
    fields = BOTH | {"prompt": "x", "score_chosen": 5, "split": "held_out", "tools": "[]"}
    chosen, rejected = to_preferences(fields, "dpo")
    assert chosen.unused == rejected.unused == ("score_chosen",)
    assert chosen.held_out is rejected.held_out is True
    fields = {
        "chosen": chat("xy"),
        "rejected": chat("xz"),
        "label": False,
        "text": "a",
        "answer": "",
    }
    chosen, _ = to_preferences(fields, "kto")
    assert sorted(chosen.unused) == ["label", "text"]
    # A question of other words than the conversation is a column that is not used.
    chosen, _ = to_preferences({"prompt": "a", "chosen": chat("xy"), "rejected": chat("xz")}, "dpo")
    assert chosen.unused == ("prompt",)


@pytest.mark.parametrize(
    ("label", "liked"),
    [
        *((True, True), (False, False), (1, True), (0, False), (1.0, True)),
        *(("true", True), (" FALSE ", False), ("1", True), ("0", False)),
    ],
)
@pytest.mark.parametrize("column", ["label", "kto_tag"])
def test_a_label_is_a_switch_or_its_word_in_a_cell(column, label, liked):
    (example,) = to_preferences({"prompt": "x", "completion": "y", column: label}, "kto")
    assert example == Example((ASK, GOOD), liked=liked)


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        ({"question": "x", "answer": "y"}, (ASK, GOOD)),
        ({"prompt": chat("x"), "completion": chat("y")}, (ASK, GOOD)),  # TRL
        ({"prompt": chat("x"), "completion": chat("yxy")}, (ASK, GOOD, ASK, GOOD)),
        ({"messages": chat("xwxy")}, (*LONG, GOOD)),
        ({"conversations": shared("xwxy")}, (*LONG, GOOD)),
        ({"prompt": "x", "history": [["x", "w"]], "completion": "y"}, (*LONG, GOOD)),
    ],
)
def test_the_answer_to_the_last_question_is_judged(fields, messages):
    (example,) = to_preferences(fields | {"label": False}, "kto")
    assert (example.messages, example.liked, example.unused) == (messages, False, ())


@pytest.mark.parametrize(
    ("fields", "columns", "objective"),
    [
        ({"q": "x", "b": "y", "c": "z"}, {"prompt": "q", "chosen": "b", "rejected": "c"}, "dpo"),
        (BOTH | {"prompt": "x", "chosen": 5, "b": "y"}, {"chosen": "b"}, "orpo"),
        ({"q": "x", "a": "y", "ok": 1}, {"prompt": "q", "completion": "a", "label": "ok"}, "kto"),
        ({"prompt": "x", "answer": "y", "ok": 1, "kto_tag": 0}, {"label": "ok"}, "kto"),
    ],
)
def test_columns_of_other_names_are_read(fields, columns, objective):
    found = to_preferences(renamed(fields, columns), objective)
    assert found[0].messages == (ASK, GOOD)
    assert found[0].liked


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.text("xyz \n:", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["role", "content", "from", "value"]), inner, max_size=3)
        | st.lists(st.sampled_from(chat("xyzw")), min_size=1, max_size=4)
    ),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(["prompt", "chosen", "rejected", "label", "completion", *NAMES]),
        VALUES,
        max_size=5,
    ),
    st.sampled_from(["dpo", "kto"]),
)
def test_any_record_is_a_preference_or_a_problem(fields, objective):
    try:
        found = to_preferences(fields, objective)
    except Problem:
        return
    assert [each.liked for each in found] == [True, False] or objective == "kto"
    assert len({each.held_out for each in found}) == 1
    for example in found:
        assert example.messages
