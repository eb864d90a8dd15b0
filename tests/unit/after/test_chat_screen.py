"""Answers on the screen: two columns, one after the other, and nothing that commands a terminal."""

from __future__ import annotations

import io
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from hearth.after.screen import Screen


class Said:
    """A stand-in of an answer that says these pieces."""

    def __init__(self, name, *pieces, interrupt_after=None):
        self.name, self.text, self.tokens, self.seconds = name, "", 0, 1.0
        self.end = None
        self._pieces, self._interrupt = list(pieces), interrupt_after

    def read(self):
        if self.tokens == self._interrupt:
            signal.raise_signal(signal.SIGINT)  # Ctrl-C amid the computation
        if not self._pieces:
            self.end = "stop"
            return ""
        piece = self._pieces.pop(0)
        self.text, self.tokens = self.text + piece, self.tokens + 1
        return piece

    def __iter__(self):
        while self.end is None:
            yield self.read()

    def close(self):
        self.end = self.end or "interrupted"


def shown(*answers, width=100, terminal=True, **variables):
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=terminal, width=width, height=20, highlight=False,
        _environ={"TERM": "xterm", **variables},
    )  # fmt: skip
    Screen(console).show(answers)
    return file.getvalue()


def test_a_wide_terminal_has_both_side_by_side_and_the_whole_of_each():
    left = [f"word{n} " for n in range(300)]
    text = shown(Said("base", *left), Said("adapter", "yes"), NO_COLOR="1")
    lines = text.splitlines()
    assert any("base" in line and "adapter" in line for line in lines)
    final = text[text.rindex("adapter") :]
    assert all(word.strip() in final for word in left)


@pytest.mark.parametrize(
    "other", [{"width": 70}, {"terminal": False}, {"TERM": "dumb"}], ids=["narrow", "pipe", "dumb"]
)
def test_elsewhere_one_stands_below_the_other(other):
    text = shown(Said("base", "one ", "two"), Said("adapter", " three"), NO_COLOR="1", **other)
    assert text.index("base") < text.index("one two") < text.index("adapter") < text.index("three")
    if other == {"terminal": False}:
        assert "\x1b" not in text


def test_colours_are_left_out_where_somebody_wants_none():
    assert "\x1b[3" not in shown(Said("base", "one"), width=70, NO_COLOR="1")


@pytest.mark.parametrize("width", [70, 100])
def test_ctrl_c_ends_the_answers_behind_the_token_that_is_computed(width):
    answers = [Said("base", "one ", "two ", "three", interrupt_after=1), Said("adapter", *"abcdef")]
    before = signal.getsignal(signal.SIGINT)
    text = shown(*answers, width=width)
    assert signal.getsignal(signal.SIGINT) == before
    assert "one two" in text
    assert "three" not in text
    assert {answer.end for answer in answers} == {"interrupted"}


@settings(max_examples=30)
@given(st.lists(st.text(), max_size=4), st.sampled_from([70, 100]))
def test_no_model_commands_the_terminal(pieces, width):
    harmless = shown(Said("base", "x"), Said("adapter", "x"), width=width)
    text = shown(Said("base", *pieces, "\x1b]0;title\x07\x9b2J"), Said("adapter", "x"), width=width)
    for strange in ("\x1b]", "\x07", "\x9b", "\x1bc"):
        assert text.count(strange) == harmless.count(strange)
