"""No docstring begins with a question word: it names the thing, not the question it answers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.repository import ROOT, tracked

QUESTION = re.compile(r"(?:What|Who|Whom|Whose|How)\b|Return (?:what|who|whom|whose|how)\b")


def is_python(path: Path) -> bool:
    """Return whether a file is Python code, by its suffix or the interpreter of its first line."""
    if path.suffix:
        return path.suffix == ".py"
    with path.open("rb") as file:
        return re.match(rb"#!.*python", file.readline(200)) is not None


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and first line of the docstrings of a file's module, classes and functions."""
    for node in ast.walk(ast.parse(text)):
        named = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, named) and (words := ast.get_docstring(node)):
            yield node.body[0].lineno, words.splitlines()[0]


@pytest.mark.parametrize("folder", ["training", "controller", "plugins", "scripts", "tests"])
def test_docstrings_name_the_thing(folder):
    files = [path for path in tracked(folder) if is_python(path)]
    assert files, f"no Python file in {folder}/"
    found = [
        f"{path.relative_to(ROOT)}:{line} {first}"
        for path in files
        for line, first in docstrings(path.read_text())
        if QUESTION.match(first)
    ]
    assert not found, "begin with the thing, not with a question word:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("What a node reports.", True),
        ("Return what a node reports.", True),
        ("However long it takes, wait for it.", False),
        ("Return whether a node reports.", False),
    ],
)
def test_question_words_are_told_from_others(words, found):
    assert bool(QUESTION.match(words)) == found
