"""Requests of OpenAI's API: what can be fulfilled is passed on, anything else is named."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearth.after.openai_requests import KINDS, RefusedRequest, checked, error_of

ASK = [{"role": "user", "content": "Hello"}]
GOOD = {
    "chat": {"model": "base", "messages": ASK},
    "completion": {"model": "base", "prompt": "Hello"},
    "responses": {"model": "base", "input": "Hello"},
}
BAD = {
    "model": [5, ["base"], None, {}],
    "temperature": ["hot", -1, 3, [], True, 1e400],
    "top_p": ["x", 0, 2, []],
    "seed": ["x", -1, 2**64, 1.5, 10**400],
    "stop": [5, [5], "", ["x"] * 99, "x" * 10_000],
    "frequency_penalty": [-1, "x", 9],
    "logit_bias": [5, {"x": 1}, {"5": "x"}, {"-1": 1}],
    "tools": ["x", ["x"], 5],
    "chat_template_kwargs": ["x", 5, []],
    "generation_config": ['{"num_beams": 99999}', {}],
    "stream": ["yes", 5],
}
OF_CHAT = {
    "messages": [
        *(5, "x", [], [5], ["x"], {}, [{}], [{"role": "user", "content": 5}]),
        [{"role": "robot", "content": "x"}],
        [{"role": ["user"], "content": "x"}],
        [{"content": "x"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}],
        [{"role": "user", "content": [{"type": "text", "text": 5}]}],
        [{"role": "assistant", "tool_calls": [{"function": {"name": "x"}}]}],
        [{"role": "assistant", "tool_calls": "x"}],
    ],
    "max_tokens": ["x", 0, -1, 1.5, 10**9, True, []],
    "max_completion_tokens": ["x", 0],
}


@pytest.mark.parametrize("kind", GOOD)
def test_a_plain_request_is_passed_on(kind):
    assert checked(kind, GOOD[kind]) == GOOD[kind]


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.parametrize("name", BAD)
def test_a_field_that_means_nothing_is_named(kind, name):
    for value in BAD[name]:
        if name == "model" or value is not None:
            with pytest.raises(RefusedRequest) as caught:
                checked(kind, GOOD[kind] | {name: value})
            assert caught.value.param == name
            assert str(caught.value).startswith(name)
            assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", OF_CHAT)
def test_so_is_one_of_a_chat(name):
    for value in OF_CHAT[name]:
        with pytest.raises(RefusedRequest) as caught:
            checked("chat", GOOD["chat"] | {name: value})
        assert caught.value.param == name


@pytest.mark.parametrize("kind", GOOD)
def test_a_field_that_is_missing_is_named(kind):
    for name in GOOD[kind]:
        lacking = {key: value for key, value in GOOD[kind].items() if key != name}
        with pytest.raises(RefusedRequest) as caught:
            checked(kind, lacking)
        assert (caught.value.param, caught.value.code) == (name, "missing_required_parameter")


def test_a_request_brings_no_template_and_no_argument_of_the_tokenizer():
    given = {"chat_template": "{{ x }}", "tokenize": False, "messages": [], "enable_thinking": True}
    wanted = checked("chat", GOOD["chat"] | {"chat_template_kwargs": given})
    assert wanted["chat_template_kwargs"] == {"enable_thinking": True}
    alone = checked("chat", GOOD["chat"] | {"chat_template_kwargs": {"chat_template": "x"}})
    assert "chat_template_kwargs" not in alone


def test_the_newer_name_of_a_limit_counts_where_the_older_is_not_given():
    given = GOOD["chat"] | {"max_completion_tokens": 7}
    assert checked("chat", given)["max_tokens"] == 7
    assert checked("chat", given | {"max_tokens": 5})["max_tokens"] == 5
    assert "max_completion_tokens" not in checked("chat", given)


def test_a_temperature_near_nothing_is_greedy():
    assert checked("chat", GOOD["chat"] | {"temperature": 1e-300})["temperature"] == 0
    assert checked("chat", GOOD["chat"] | {"temperature": 0.7})["temperature"] == 0.7


def test_an_error_has_the_fields_of_openais():
    assert error_of("no", param="model", code="x") == {
        "error": {"message": "no", "type": "invalid_request_error", "param": "model", "code": "x"}
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
NAMES = st.sampled_from([*BAD, *OF_CHAT, "input", "prompt", "instructions", "suffix", "x"])


@settings(deadline=None)
@given(st.sampled_from([*KINDS]), st.dictionaries(NAMES, JSON, max_size=3))
def test_any_body_is_taken_or_refused(kind, changes):
    try:
        wanted = checked(kind, GOOD[kind] | changes)
    except RefusedRequest as refused:
        assert str(refused)
    else:
        assert isinstance(wanted["model"], str)
        assert 0 <= wanted.get("temperature", 1) <= 2
