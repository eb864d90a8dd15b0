"""A chat with lines from a pipe: who answers, the history, and errors that do not end it."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console

from hearth.after.answer import Sampling
from hearth.after.conversation import Conversation
from hearth.after.screen import Screen
from hearth.after.session import Session
from hearth.after.sides import Side
from hearth.data.messages import Message
from hearth.data.template import PLAIN_TEMPLATE

SHORT = Sampling(max_tokens=3)


def chat(monkeypatch, conversations, *lines):
    """Return the output of a chat with these lines."""
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    file = io.StringIO()
    Session(conversations, SHORT, Screen(Console(file=file, width=200))).run()
    return file.getvalue()


@pytest.fixture
def conversations(sides):
    return [Conversation(side) for side in sides]


def test_who_answers_is_chosen_and_each_remembers_what_it_was_asked(monkeypatch, conversations):
    base, adapter = conversations
    chat(monkeypatch, conversations, "one", "/base", "two", "/adapter three", "", "/both", "four")
    asked = [[one.content for one in each.messages if one.role == "user"] for each in conversations]
    assert asked == [["one", "two", "four"], ["one", "three", "four"]]
    chat(monkeypatch, conversations, "/reset", "five", "/quit", "six")
    assert base.messages[0] == adapter.messages[0] == Message("user", "five")
    assert Message("user", "six") not in base.messages


def test_a_wrong_command_ends_nothing(monkeypatch, conversations):
    text = chat(monkeypatch, conversations, "/nope", "/temperature 0.5", "/seed 9", "one")
    assert "/nope" in text
    assert "0.5" in text
    assert text.count("tokens/s") == 2


def test_an_answer_without_memory_ends_the_answer_only(monkeypatch, sides):
    class Full:
        """A stand-in of a model whose card is full."""

        config, generation_config = sides[0].network.config, sides[0].network.generation_config
        device = torch.device("cpu")

        def generate(self, **_):
            raise torch.OutOfMemoryError

    full = Conversation(Side("base", Full(), sides[0].tokenizer))
    text = chat(monkeypatch, [full, Conversation(sides[1])], "one", "/adapter", "two")
    assert "/reset" in text
    assert text.count("tokens/s") == 1
    assert full.messages == []


def test_a_model_without_a_template_is_asked_as_it_was_trained(sides):
    tokenizer = sides[0].tokenizer.__class__(
        tokenizer_object=sides[0].tokenizer.backend_tokenizer, eos_token="<|im_end|>"
    )
    tokenizer.chat_template = PLAIN_TEMPLATE
    conversation = Conversation(Side("base", sides[0].network, tokenizer))
    ids, until = conversation._tokens("Why?")
    assert tokenizer.decode(ids) == "User: Why?\nAssistant:"
    assert until == "\nUser:"
