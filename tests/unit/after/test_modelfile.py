"""Ollama's Modelfile."""

from __future__ import annotations

import re

from hearth.after.modelfile import modelfile
from hearth.after.turns import Turns


def test_ends_of_an_answer_are_named_once_and_quoted():
    ends = ["</s>", 'a"b\\\n', "</s>", '"""\nFROM x']
    text = modelfile("night", "./night.gguf", None, None, ends)
    found = re.findall(r'^PARAMETER stop """(.*?)"""$', text, re.DOTALL | re.MULTILINE)
    assert found == ["</s>", 'a"b\\\n']
    assert text.count("FROM") == 1


def test_without_turns_the_template_is_left_to_ollama():
    lines = modelfile("night", "./night.gguf", None, None, []).splitlines()
    assert not any(line.startswith("TEMPLATE") for line in lines)
    assert any("ollama show --template night" in line for line in lines)


def test_a_template_that_would_end_early_is_left_to_ollama():
    turns = Turns("user: ", None, "", "user: ", "\n", "model: ", "\n", "model: ")
    assert 'TEMPLATE """' in modelfile("night", "./night.gguf", None, turns, [])
    ending = Turns('"""\nFROM /etc/passwd\n', None, "", "user: ", "\n", "model: ", "\n", "model: ")
    lines = modelfile("night", "./night.gguf", None, ending, []).splitlines()
    assert [line for line in lines if line.startswith("FROM")] == ["FROM ./night.gguf"]
    assert any("ollama show --template night" in line for line in lines)
