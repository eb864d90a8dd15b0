"""Ollama's Modelfile, and chat templates as plain turns, found by rendering conversations."""

from __future__ import annotations

import re
from dataclasses import replace

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.after.ollama import Turns, modelfile, turns_of
from hearth.data.template import PLAIN_TEMPLATE

TEXTS = st.text("<|>[]/ \nuserINST{}:", max_size=12)
TURNS = st.builds(
    Turns,
    first=TEXTS,
    system=st.none() | TEXTS,
    joint=TEXTS,
    user=TEXTS,
    asked=TEXTS,
    assistant=TEXTS,
    answered=TEXTS,
    prompt=TEXTS,
)
CHATML = Turns(
    first="<s>user\n",
    system="<s>system\n",
    joint="</s>\n<s>user\n",
    user="<s>user\n",
    asked="</s>\n",
    assistant="<s>assistant\n",
    answered="</s>\n",
    prompt="<s>assistant\n",
)
CONVERSATIONS = [
    [("user", "one")],
    [("user", "one"), ("assistant", "two"), ("user", "three")],
    [("system", "zero"), ("user", "one"), ("assistant", "two"), ("user", "three")],
]


def refusing(turns, messages, prompt):
    """Render as a template does that may refuse a system message."""
    if turns.system is None and messages[0][0] == "system":
        raise ValueError("no system message")
    return turns.render(messages, prompt)


@given(TURNS)
def test_any_fixed_texts_are_found(turns):
    found = turns_of(lambda messages, prompt: refusing(turns, messages, prompt))
    assert found is not None
    for messages in CONVERSATIONS if turns.system is not None else CONVERSATIONS[:2]:
        assert found.render(messages, True) == turns.render(messages, True)


@pytest.mark.parametrize(
    "render",
    [
        lambda messages, prompt: "".join(text.upper() for _, text in messages),
        lambda messages, prompt: "".join(f"{i}{text}" for i, (_, text) in enumerate(messages)),
        lambda messages, prompt: messages[-1][1],
        lambda messages, prompt: CHATML.render(messages, prompt).replace("42", "43"),
    ],
    ids=["changes contents", "counts turns", "forgets turns", "reads contents"],
)
def test_a_template_that_does_more_is_left_alone(render):
    assert turns_of(render) is None


def test_a_template_without_system_messages_has_no_branch_for_them():
    assert 'eq .Role "system"' in CHATML.as_go()
    assert 'eq .Role "system"' not in replace(CHATML, system=None).as_go()


def test_braces_of_a_template_are_texts_in_go():
    assert '{{ "{{" }} x }}' in replace(CHATML, asked="{{ x }}").as_go()


FAMOUS = {
    "llama 2": (
        "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}"
        "{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}"
        "{% set system = false %}{% endif %}{% for message in rest %}"
        "{% if loop.index0 == 0 and system != false %}"
        "{% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + message['content'] %}"
        "{% else %}{% set content = message['content'] %}{% endif %}"
        "{% if message['role'] == 'user' %}{{ '<s>[INST] ' + content.strip() + ' [/INST]' }}"
        "{% else %}{{ ' ' + content.strip() + ' </s>' }}{% endif %}{% endfor %}"
    ),
    "llama 3": (
        "{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
        "'<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
        "{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    ),
    "gemma": (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{% for message in messages %}{{ '<start_of_turn>' + "
        "('model' if message['role'] == 'assistant' else message['role']) + '\n' + "
        "message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
    ),
    "phi 3": (
        "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + "
        "'<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}"
        "{% endif %}"
    ),
    "Hearth's own": PLAIN_TEMPLATE,
}


@pytest.mark.parametrize("name", FAMOUS)
def test_templates_of_famous_models_are_turns(name):
    def refuse(why):
        raise ValueError(why)

    template = jinja2.Environment().from_string(FAMOUS[name], {"raise_exception": refuse})

    def render(messages, prompt):
        named = [{"role": role, "content": content} for role, content in messages]
        return template.render(messages=named, add_generation_prompt=prompt, eos_token="</s>")

    turns = turns_of(render)
    assert turns is not None
    assert (turns.system is None) == (name == "gemma")
    assert turns.render(CONVERSATIONS[1], True) == render(CONVERSATIONS[1], True)


def test_ends_of_an_answer_are_named_once_and_quoted():
    ends = ["</s>", 'a"b\\\n', "</s>", '"""\nFROM x']
    text = modelfile("night", "night.gguf", None, ends)
    found = re.findall(r'^PARAMETER stop """(.*?)"""$', text, re.DOTALL | re.MULTILINE)
    assert found == ["</s>", 'a"b\\\n']
    assert text.count("FROM") == 1


def test_without_turns_the_template_is_left_to_ollama():
    lines = modelfile("night", "night.gguf", None, []).splitlines()
    assert not any(line.startswith("TEMPLATE") for line in lines)
    assert any("ollama show --template night" in line for line in lines)


def test_a_template_that_would_end_early_is_left_to_ollama():
    turns = Turns("user: ", None, "", "user: ", "\n", "model: ", "\n", "model: ")
    assert 'TEMPLATE """' in modelfile("night", "night.gguf", turns, [])
    ending = Turns('"""\nFROM /etc/passwd\n', None, "", "user: ", "\n", "model: ", "\n", "model: ")
    lines = modelfile("night", "night.gguf", ending, []).splitlines()
    assert [line for line in lines if line.startswith("FROM")] == ["FROM ./night.gguf"]
    assert any("ollama show --template night" in line for line in lines)
