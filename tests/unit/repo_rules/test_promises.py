"""docs/safety.md: each promise has the tests that hold it, in tests/fixtures/promises.yml."""

from __future__ import annotations

import ast
import re

import yaml
from support.repository import ROOT

PAGE = (ROOT / "docs" / "safety.md").read_text(encoding="utf-8")
TABLE = yaml.safe_load((ROOT / "tests" / "fixtures" / "promises.yml").read_text(encoding="utf-8"))
HEAD_OF_TABLE = re.compile(r"^\|.*\n\|[-|]+\|$", re.MULTILINE)


def blocks(page: str) -> list[str]:
    """Return the paragraphs, bullets and table rows of a page, each as one line."""
    parts = re.split(r"\n\s*\n|\n(?=- |\|)", HEAD_OF_TABLE.sub("", page))
    lines = (" ".join(part.split()) for part in parts)
    return [line for line in lines if line and not line.startswith("#")]


def test_every_block_of_the_page_is_held_by_a_test_or_promises_nothing():
    known = [*TABLE["promises"], *TABLE["promise_nothing"]]
    assert [block for block in blocks(PAGE) if not any(text in block for text in known)] == []


def test_every_promise_stands_in_the_page():
    known = [*TABLE["promises"], *TABLE["promise_nothing"]]
    assert [text for text in known if not any(text in block for block in blocks(PAGE))] == []


def test_every_test_that_holds_a_promise_is_there():
    named = {
        (file, test)
        for holding in TABLE["promises"].values()
        for file, tests in holding.items()
        for test in tests
    }
    there = {
        (file, node.name)
        for file in {file for file, _ in named}
        for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert named - there == set()
    assert all(holding and all(holding.values()) for holding in TABLE["promises"].values())


def test_paragraphs_bullets_and_rows_are_told_apart():
    page = (
        "# Head\n\nOne\nline.\n- a\n  b\n- c\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n```\nrule\n```\n"
    )
    assert blocks(page) == ["One line.", "- a b", "- c", "| 1 | 2 |", "``` rule ```"]
