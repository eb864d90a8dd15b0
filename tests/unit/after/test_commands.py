"""Lines typed into a chat: prompts and commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import refuses

from hearth.after.commands import Line, help_lines, parse_line
from hearth.base.errors import ConfigError

SIDES = ["base", "adapter"]


@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1))
def test_every_text_can_be_a_prompt(text):
    typed = f"/{text}" if text.startswith("/") else text
    assert parse_line(f"  {typed} ", SIDES) == Line("", text)


@given(st.text())
def test_a_line_is_a_prompt_a_known_command_or_refused(typed):
    try:
        line = parse_line(typed, SIDES)
    except ConfigError:
        return
    shown = {name.removeprefix("/").split()[0] for name, _ in help_lines(SIDES)}
    assert line.command in {"", "help", "exit", *shown}


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("/base", Line("base", "")),
        ("/adapter what now", Line("adapter", "what now")),
        ("/temperature 0.7", Line("temperature", "0.7")),
        ("/quit", Line("quit", "")),
        ("", Line("", "")),
    ],
)
def test_commands(typed, line):
    assert parse_line(typed, SIDES) == line


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
def test_what_is_wrong_is_named(typed, facts):
    with refuses(ConfigError, *facts):
        parse_line(typed, SIDES)
