"""Text of any origin on its way to the screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.base.text import plain


@given(st.text())
def test_no_control_character_is_left_but_line_ends_and_tabs(text):
    assert all(c.isprintable() or c in "\n\t" for c in plain(text))
    assert plain(plain(text)) == plain(text)


@pytest.mark.parametrize(
    "command",
    [
        "\x1b[2J",
        "\x1b[1;31m",
        "\x1b]0;title\x07",
        "\x1b]8;;http://x\x1b\\",
        "\x1bM",
        "\b",
        "\r",
        "\x9b",
    ],
    ids=["clear", "colour", "title", "link", "scroll", "back", "return", "C1"],
)
def test_a_command_goes_and_the_words_around_it_stay(command):
    assert plain(f"node:{command} no space\n\tleft") == "node: no space\n\tleft"
