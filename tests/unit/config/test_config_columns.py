"""The setting `columns` on the command line, in a file and in the run file."""

from __future__ import annotations

import pytest
from support.facts import refuses

from hearth.config import ConfigError, read_run, resolve_run, write_run
from hearth.config.cli import parse_command_line
from hearth.config.run import describe_settings

MODEL = {"model": "smollm2-135m", "run": "night"}
NAMED = {"question": "frage", "answer": "antwort"}


@pytest.mark.parametrize(
    ("typed", "columns"),
    [
        ("question=frage,answer=antwort", NAMED),
        (" question = frage , answer=antwort ", NAMED),
        ("{question: frage, answer: antwort}", NAMED),
        (NAMED, NAMED),
        ("text=a=b", {"text": "a=b"}),
        ("", {}),
        ("none", {}),
        ({}, {}),
    ],
)
def test_columns_are_read_in_every_form(tmp_path, typed, columns):
    run = resolve_run(MODEL | {"columns": typed}, tmp_path)
    assert run.settings.columns == columns
    write_run(run, tmp_path / "night" / "run.yml")
    assert read_run(tmp_path / "night" / "run.yml") == run


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        ("questoin=frage", ["'questoin'", "did you mean 'question'"]),
        ("frage=question", ["'frage'", "question", "answer"]),
        ("frage", ["'frage'", "question=frage"]),
        ("question=", ["question"]),
        ("question=a,answer=a", ["'a'", "question", "answer"]),
        ("question=a,question=b", ["question", "twice"]),
        ("{question: a", ["mapping"]),
        (17, ["columns"]),
    ],
)
def test_columns_that_cannot_be_meant_are_refused(tmp_path, typed, facts):
    with refuses(ConfigError, "columns", *facts):
        resolve_run(MODEL | {"columns": typed}, tmp_path)


def test_the_command_line_and_the_table_of_settings_show_them_as_typed(tmp_path):
    typed = "question=frage,answer=antwort"
    given = parse_command_line(["--model", "smollm2-135m", "--columns", typed]).given
    assert typed in describe_settings(resolve_run(given, tmp_path))


def test_a_resumed_run_keeps_its_columns(tmp_path):
    write_run(resolve_run(MODEL | {"columns": NAMED}, tmp_path), tmp_path / "night" / "run.yml")
    assert resolve_run({"resume": "night"}, tmp_path).settings.columns == NAMED
    with refuses(ConfigError, "columns", "resumed"):
        resolve_run({"resume": "night", "columns": "text=frage"}, tmp_path)
