"""A chat with lines typed or from a pipe: commands, answers, and errors that do not end it."""

from __future__ import annotations

import io
import signal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from support.facts import refuses

from hearth.after.answer import ChatAnswer, Conversation, Sampling
from hearth.after.sides import Side
from hearth.after.terminal import ChatScreen, Session, help_lines, parse_line
from hearth.base.errors import ConfigError
from hearth.data.messages import Message

SHORT = Sampling(max_tokens=3)
NAMES = ["base", "adapter"]


@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1))
def test_every_text_can_be_a_prompt(text):
    typed = f"/{text}" if text.startswith("/") else text
    assert parse_line(f"  {typed} ", NAMES) == ("", text)


@given(st.text())
def test_a_line_is_a_prompt_a_known_command_or_refused(typed):
    try:
        command, _ = parse_line(typed, NAMES)
    except ConfigError:
        return
    shown = {name.removeprefix("/").split()[0] for name, _ in help_lines(NAMES)}
    assert command in {"", "help", "exit", *shown}


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        ("/adaptor", ["/adaptor", "adapter"]),
        ("/model", ["/model"]),
        ("/temperature warm", ["warm"]),
        ("/temperature nan", ["nan"]),
        ("/seed -1", ["-1"]),
        ("/reset it", ["/reset"]),
    ],
)
def test_a_wrong_command_is_named(typed, facts):
    with refuses(ConfigError, *facts):
        parse_line(typed, NAMES)


def chat(monkeypatch, conversations, *lines):
    """Return the output of a chat with these lines."""
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    file = io.StringIO()
    Session(conversations, SHORT, ChatScreen(Console(file=file, width=200))).run()
    assert "\x1b" not in file.getvalue()
    return file.getvalue()


def questions(conversation):
    return [each.content for each in conversation.messages if each.role == "user"]


def test_the_trained_model_answers_until_the_base_is_chosen(monkeypatch, sides):
    base, adapter = conversations = [Conversation(side) for side in sides]
    chat(monkeypatch, conversations, "one", "/base", "two", "", "/adapter", "three")
    assert (questions(base), questions(adapter)) == (["two"], ["one", "three"])
    chat(monkeypatch, conversations, "/reset", "four", "/quit", "five")
    assert adapter.messages[0] == Message("user", "four")
    assert (questions(base), questions(adapter)) == ([], ["four"])


def test_a_wrong_command_ends_nothing(monkeypatch, sides):
    conversations = [Conversation(side) for side in sides]
    text = chat(monkeypatch, conversations, "/nope", "/temperature 0.5", "/seed 9", "one")
    for part in ("/nope", "0.5", "seed 9", "tokens/s"):
        assert part in text


def test_an_answer_without_memory_ends_the_answer_only(monkeypatch, sides):
    class Full:
        """A stand-in of a model whose card is full."""

        config, generation_config = sides[0].network.config, sides[0].network.generation_config
        device = torch.device("cpu")

        def generate(self, **_):
            raise torch.OutOfMemoryError

    full = Conversation(Side("adapter", Full(), sides[0].tokenizer))
    text = chat(monkeypatch, [Conversation(sides[0]), full], "one", "/base", "two")
    assert "/reset" in text
    assert text.count("tokens/s") == 1
    assert full.messages == []


def test_ctrl_c_ends_an_answer_behind_the_token_that_is_computed(monkeypatch, sides):
    class Interrupted(Conversation):
        def ask(self, prompt, sampling, show, interrupted):
            def add(piece):
                show(piece)
                signal.raise_signal(signal.SIGINT)

            return super().ask(prompt, Sampling(max_tokens=500), add, interrupted)

    before = signal.getsignal(signal.SIGINT)
    text = chat(monkeypatch, [Interrupted(sides[1])], "one", "/seed 2")
    assert signal.getsignal(signal.SIGINT) == before
    assert "stopped" in text
    assert "seed 2" in text


def shown(*pieces):
    """Return the output of an answer in these pieces on a terminal."""
    file = io.StringIO()

    def ask(add):
        for piece in pieces:
            add(piece)
        return ChatAnswer("".join(pieces), len(pieces), 1.0, "stop")

    ChatScreen(Console(file=file, force_terminal=True, no_color=True)).show(ask)
    return file.getvalue()


@settings(max_examples=30)
@given(st.lists(st.text(), max_size=4))
def test_no_model_commands_the_terminal(pieces):
    harmless = shown("x")
    text = shown(*pieces, "\x1b]0;title\x07\x9b2J")
    for strange in ("\x1b]", "\x07", "\x9b", "\x1bc"):
        assert text.count(strange) == harmless.count(strange)
