"""Text of any origin on its way to the screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.base.text import fitted, folded, plain, wrapped


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


WORDS = st.text("abcdefgh-/.=", min_size=1, max_size=30)
CELLS = st.lists(WORDS, max_size=12).map(" ".join)


def together(lines: list[str]) -> set[str]:
    """Return all words of these lines."""
    return {word for line in lines for word in line.split()}


@given(CELLS, st.integers(40, 120), st.sampled_from(["", "  ", "      "]))
def test_a_wrapped_line_fits_and_breaks_no_word_that_does(text, columns, indent):
    lines = wrapped(indent + text, columns, "    ")
    assert max(map(len, lines)) <= columns
    assert together(lines) == set(text.split())


@given(
    st.lists(st.tuples(WORDS, *[CELLS] * 4), min_size=1, max_size=5), st.sampled_from([60, 78, 118])
)
def test_a_table_fits_whatever_its_cells_hold_and_breaks_no_word_that_does(rows, columns):
    rows = [("name", "state", "nodes", "loss", "checkpoint"), *rows]
    lines = fitted(rows, columns)
    assert max(map(len, lines)) <= columns
    assert together(lines) == {word for row in rows for cell in row for word in cell.split()}


def test_the_lines_of_a_text_are_folded_each_by_itself():
    text = "a short line\n\n  one that is indented and longer\nlast"
    assert folded(text, 20).split("\n") == [
        *("a short line", "", "  one that is", "      indented and", "      longer", "last"),
    ]


def test_a_table_that_is_too_wide_is_continued_below_with_its_first_column():
    rows = [("run", "state", "nodes"), ("evening", "running", "tower, laptop, oldbox")]
    assert fitted(rows, 100) == [
        "run      state    nodes",
        "evening  running  tower, laptop, oldbox",
    ]
    assert fitted(rows, 32) == [
        "run      state",
        "evening  running",
        "",
        "run      nodes",
        "evening  tower, laptop, oldbox",
    ]
    assert fitted(rows, 20)[3:] == [
        "run      nodes",
        "evening  tower,",
        "         laptop,",
        "         oldbox",
    ]


def test_a_word_that_is_longer_than_a_line_is_broken():
    assert max(map(len, fitted([("a", "b"), ("x" * 50, "y" * 90)], 40))) <= 40
