"""Columns of a record and members of its messages: used, refused by name, or listed as unused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import refuses

from hearth.data.columns import ANSWERS, CONVERSATIONS, NAMES, QUESTIONS, to_example
from hearth.data.findings import Problem
from hearth.data.messages import Example, Message
from hearth.data.records import renamed

ASK, REPLY = Message("user", "q"), Message("assistant", "a")
SYSTEM = Message("system", "s")
THOUGHTFUL = Message("assistant", "a", "t")
USER = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}
FUNCTION = {"name": "f", "description": "adds", "parameters": {"type": "object"}}
WRAPPED = {"type": "function", "function": FUNCTION}
CALL = {"name": "f", "arguments": {"x": 1, "y": None}}
AS_TEXT = {"name": "f", "arguments": json.dumps(CALL["arguments"])}
CALLING = Message("assistant", calls=(CALL,))


def sharegpt(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"from": name, "value": value} for name, value in turns]


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        # A system message beside the conversation.
        ({"messages": [USER, ANSWER], "system": "s"}, (SYSTEM, ASK, REPLY)),
        ({"conversations": [USER, ANSWER], "system": "s"}, (SYSTEM, ASK, REPLY)),
        ({"messages": [USER, ANSWER], "system": " "}, (ASK, REPLY)),
        (
            {"messages": [{"role": "system", "content": "s"}, USER, ANSWER], "system": " s"},
            (SYSTEM, ASK, REPLY),
        ),
        # Common names of columns.
        ({"question": "q", "answer": "a"}, (ASK, REPLY)),
        ({"question": "q", "context": "c", "answer": "a"}, (Message("user", "q\n\nc"), REPLY)),
        ({"input": "q", "output": "a"}, (ASK, REPLY)),
        ({"prompt": "q", "response": "a"}, (ASK, REPLY)),
        ({"query": "q", "response": "a"}, (ASK, REPLY)),
        ({"instruction": "q", "response": "a", "context": ""}, (ASK, REPLY)),
        ({"instruction": "q", "context": "c", "response": "a"}, (Message("user", "q\n\nc"), REPLY)),
        ({"system_prompt": "s", "question": "q", "response": "a"}, (SYSTEM, ASK, REPLY)),
        ({"dialogue": [USER, ANSWER]}, (ASK, REPLY)),
        ({"instruction": "", "input": "q", "output": "a"}, (ASK, REPLY)),
        # Earlier turns.
        (
            {"instruction": "q", "output": "a", "history": [["1", "2"]], "system": "s"},
            (SYSTEM, Message("user", "1"), Message("assistant", "2"), ASK, REPLY),
        ),
        (
            {"instruction": "q", "output": "a", "history": '[["1", "2"]]'},
            (Message("user", "1"), Message("assistant", "2"), ASK, REPLY),
        ),
        # Of a conversation as a prompt the completion alone is learned.
        (
            {"prompt": [USER, ANSWER, USER], "completion": [ANSWER]},
            (ASK, Message("assistant", "a", learned=False), ASK, REPLY),
        ),
        ({"prompt": [USER], "completion": "a"}, (ASK, REPLY)),
        ({"prompt": "q", "completion": "a", "label": True}, (ASK, REPLY)),
        ({"prompt": "q", "completion": "a", "thought": "t"}, (ASK, THOUGHTFUL)),
        # A form that holds nothing gives way to one that does.
        ({"messages": "", "prompt": "q", "completion": "a"}, (ASK, REPLY)),
    ],
)
def test_columns_beside_a_conversation_are_used(fields, messages):
    assert to_example(fields) == Example(messages)


@pytest.mark.parametrize(
    ("turns", "messages"),
    [
        # Roles by other names.
        (sharegpt(("human", "q"), ("chatgpt", "a")), (ASK, REPLY)),
        (sharegpt(("User", "q"), ("bot", "a")), (ASK, REPLY)),
        ([USER, ANSWER | {"role": "model"}], (ASK, REPLY)),
        ([{"role": "developer", "content": "s"}, USER, ANSWER], (SYSTEM, ASK, REPLY)),
        # Null members are absent.
        (
            [USER | {"from": None, "value": None}, {"from": "gpt", "value": "a", "role": None}],
            (ASK, REPLY),
        ),
        # Parts of a content.
        ([USER | {"content": [{"type": "text", "text": "q"}]}, ANSWER], (ASK, REPLY)),
        (
            [USER | {"content": [{"text": "q"}, {"type": "text", "text": "r"}]}, ANSWER],
            (Message("user", "qr"), REPLY),
        ),
        # Answers that are not learned.
        *(
            ([USER, ANSWER | {name: no}], (ASK, Message("assistant", "a", learned=False)))
            for name, no in (
                *(("weight", 0), ("train", False), ("loss", False), ("loss_weight", 0.0)),
                ("weight", "0"),
            )
        ),
        ([USER | {"weight": 0}, ANSWER | {"weight": 1.0, "train": True}], (ASK, REPLY)),
        # Thoughts.
        *(
            ([USER, ANSWER | {name: "t"}], (ASK, THOUGHTFUL))
            for name in ("reasoning_content", "thinking", "reasoning", "thought")
        ),
        # Calls of functions and their results.
        *(
            (
                [USER, {"role": "assistant", "content": None, "tool_calls": calls}],
                (ASK, CALLING),
            )
            for calls in (
                [{"id": "1", "type": "function", "function": AS_TEXT}],
                [{"function": CALL}],
                [CALL],
                json.dumps([CALL]),
            )
        ),
        ([USER, {"role": "assistant", "function_call": AS_TEXT}], (ASK, CALLING)),
        (
            [USER, {"role": "assistant", "tool_calls": [{"name": "f", "arguments": ""}]}],
            (ASK, Message("assistant", calls=({"name": "f", "arguments": {}},))),
        ),
        (
            [USER, ANSWER, {"role": "tool", "content": "3", "name": "f", "tool_call_id": "1"}],
            (ASK, REPLY, Message("tool", "3", details={"name": "f", "tool_call_id": "1"})),
        ),
        ([USER, ANSWER, {"role": "tool", "content": None}], (ASK, REPLY, Message("tool"))),
        (
            sharegpt(("human", "q"), ("function_call", json.dumps(CALL)), ("observation", "3")),
            (ASK, CALLING, Message("tool", "3")),
        ),
        (
            sharegpt(
                ("human", "q"),
                ("gpt", f"a\n<tool_call>\n{json.dumps(CALL)}\n</tool_call>"),
                ("tool", "<tool_response>\n3\n</tool_response>"),
            ),
            (ASK, Message("assistant", "a", calls=(CALL,)), Message("tool", "3")),
        ),
        ([USER, ANSWER | {"content": "<tool_call>f"}], (ASK, Message("assistant", "<tool_call>f"))),
    ],
)
def test_members_of_a_message_are_used(turns, messages):
    assert to_example({"messages": turns}) == Example(messages)
    assert to_example({"conversations": json.dumps(turns)}) == Example(messages)


@pytest.mark.parametrize(
    "tools", [[WRAPPED], [FUNCTION], FUNCTION, json.dumps([FUNCTION]), [json.dumps(WRAPPED)]]
)
@pytest.mark.parametrize("column", ["tools", "functions"])
def test_functions_are_read_in_every_form(tools, column):
    found = to_example({"messages": [USER, ANSWER], column: tools})
    assert found == Example((ASK, REPLY), tools=(WRAPPED,))
    assert to_example({"messages": [USER, ANSWER], column: "[]"}).tools == ()


def test_functions_that_the_system_message_lists_are_not_listed_twice():
    system = {"from": "system", "value": "<tools>[]</tools>"}
    found = to_example({"conversations": [system, USER, ANSWER], "tools": [FUNCTION]})
    assert (found.tools, found.unused) == ((), ("tools",))


@pytest.mark.parametrize(
    ("fields", "unused"),
    [
        ({"text": "a", "url": "x", "empty": "", "none": [], "split": "train"}, ("url",)),
        (
            {"messages": [USER, ANSWER], "prompt": "p", "completion": "c", "text": "t"},
            ("prompt", "completion", "text"),
        ),
        ({"prompt": "q", "completion": "a", "response": "b", "label": 0}, ("response", "label")),
        ({"prompt": "q", "completion": "a", "label": "0"}, ("label",)),
        ({"messages": [USER | {"id": 3, "name": "Ann"}, ANSWER]}, ("messages.id", "messages.name")),
        (
            {"question": "q", "answer": "a", "dialogue": "x", "tools": "drill"},
            ("dialogue", "tools"),
        ),
        ({"text": "a", "system": "s", "tools": [FUNCTION]}, ("system", "tools")),
        ({"text": "a", "x\ud800": "b"}, ("x\\ud800",)),
    ],
)
def test_columns_that_are_not_read_are_listed(fields, unused):
    assert to_example(fields).unused == unused


@pytest.mark.parametrize(
    ("columns", "fields", "wanted"),
    [
        ({"question": "frage", "answer": "antwort"}, {"frage": "q", "antwort": "a"}, (ASK, REPLY)),
        (
            {"question": "frage", "answer": "antwort"},
            {"frage": "q", "antwort": "a", "prompt": "p", "answer": "b", "messages": [USER]},
            (ASK, REPLY),
        ),
        ({"completion": "chosen"}, {"prompt": "q", "chosen": "a", "rejected": "b"}, (ASK, REPLY)),
        (
            {"prompt": "completion", "completion": "prompt"},
            {"completion": "q", "prompt": "a"},
            (ASK, REPLY),
        ),
        (
            {"instruction": "task"},
            {"task": "q", "input": "i", "output": "a"},
            (Message("user", "q\n\ni"), REPLY),
        ),
    ],
)
def test_columns_that_a_person_names_win(columns, fields, wanted):
    found = to_example(renamed(fields, columns))
    assert found.messages == wanted
    read = {*columns.values(), "input", "output", "prompt"}
    shown = {name.split(" (")[0] for name in found.unused}
    assert shown >= fields.keys() - read


def test_text_that_a_person_names_wins_over_a_conversation():
    fields = {"body": "t", "messages": [USER, ANSWER], "text": "other"}
    found = to_example(renamed(fields, {"text": "body"}))
    assert (found.text, len(found.unused)) == ("t", 2)


@pytest.mark.parametrize("column", ["label", "kto_tag"])
@pytest.mark.parametrize("bad", [False, "False"])
def test_a_bad_answer_is_refused_rather_than_learned_as_a_good_one(column, bad):
    with refuses(Problem, column, "bad"):
        to_example({"prompt": "q", "completion": "a", column: bad})


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["user", "assistant", "tool", "[", "{}", "\ud800", '{"name": "f"}', "[[]]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=3)
            | st.sampled_from(
                [
                    *("role", "from", "content", "value", "weight", "train", "tool_calls"),
                    *("function_call", "function", "name", "arguments", "parameters"),
                    *("thinking", "type", "text", "tool_call_id"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def example_or_problem(fields: dict) -> None:
    """Require an example that can be hashed, or a problem that can be printed."""
    try:
        found = to_example(fields)
    except Problem as problem:
        str(problem).encode("utf-8")
    else:
        found.hash.to_bytes(8, "big")
        "".join(found.unused).encode("utf-8")


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), VALUES, max_size=5))
def test_any_record_is_an_example_or_a_problem(fields):
    example_or_problem(fields)
    example_or_problem(renamed(fields, {"question": "answer", "text": "x"}))


@given(st.data())
def test_any_value_in_the_place_of_a_good_one_is_an_example_or_a_problem(data):
    good = {
        "role": "assistant",
        "content": [{"type": "text", "text": "a"}],
        "tool_calls": [{"function": {"name": "f", "arguments": {"x": "y"}}}],
        "weight": 1,
        "thinking": "t",
    }
    place = data.draw(st.sampled_from([*good, "part", "call", "arguments"]))
    value = data.draw(VALUES)
    if place == "part":
        good["content"].append(value)
    elif place == "call":
        good["tool_calls"].append(value)
    elif place == "arguments":
        good["tool_calls"][0]["function"]["arguments"] = value
    else:
        good[place] = value
    column = data.draw(st.sampled_from([*CONVERSATIONS, *QUESTIONS, *ANSWERS]))
    beside = {"question": "q", "answer": "a", "tools": data.draw(VALUES)}
    example_or_problem(beside | {column: [good, good]})


@pytest.mark.parametrize("depth", [900, 20_000])
def test_a_value_that_is_nested_too_deep_is_a_problem(depth):
    deep: object = []
    for _ in range(depth):
        deep = [deep]
    for fields in ({"messages": [{"role": deep, "content": "a"}]}, {"split": deep}):
        with pytest.raises(Problem):
            to_example(fields)
