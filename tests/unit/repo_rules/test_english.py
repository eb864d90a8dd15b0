"""Plain English, as far as it can be counted, in docstrings, messages, task names and pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.repository import ROOT, tracked

FOLDERS = ("training", "controller", "plugins", "scripts", "tests")
QUESTION = re.compile(r"(?:What|Who|Whom|Whose|How)\b|Return (?:what|who|whom|whose|how)\b")
DIALECT = re.compile(
    r"\b(?:somebody|nobody|so many|so much|(?:be|is|are) let be|as well as ever|its word|its day"
    r"|(?:is|are|was|were) told of|comes? to|came to|lies|lays)\b",
    re.IGNORECASE,
)
"""Words that hide the actor, or that the field has a better word for."""
RELATIVE = re.compile(
    r"\b(?:about|after|against|at|before|behind|beside|between|by|for|from|in|into|of|on|over"
    r"|through|to|under|until|with|without)\s+(?:which|whom|whose)\b",
    re.IGNORECASE,
)
CLAUSE = re.compile(r"\bwhat(?:ever)? (?:it|they|he|is|are|was|were|has|have|had)\b", re.IGNORECASE)

MOST_CLAUSES = 0.02
"""The part of a folder's docstrings that may have such a clause."""

IMPERATIVE = re.compile(
    r"(?:Abort|Add|Admit|Ask|Assert|Authorize|Become|Bring|Call|Check|Choose|Compare|Compute|Count|"
    r"Cut|Decide|Divide|Download|Draw|End|Enable|Evaluate|Export|Examine|Fetch|Find|Follow|"
    r"Forget|Give|Go|Group|Inspect|Install|Keep|Leave|Limit|Link|Load|Log|Look|"
    r"Make|Mark|Measure|Mend|Move|Name|Note|Pass|Place|Plan|Prepare|Push|Put|"
    r"Read|Receive|Recognise|Reconnect|Record|Refresh|Refuse|Register|Remember|Remove|Report|"
    r"Require|Reset|Resolve|Restart|Restore|Resume|Run|Save|Say|Send|Set|Show|"
    r"Skip|Start|Stop|Submit|Sum|Switch|Take|Test|Train|Undo|Update|Use|Verify|"
    r"Wait|Warn|Write)\b"
)


def is_python(path: Path) -> bool:
    """Return whether a file is Python code, by its suffix or the interpreter of its first line."""
    if path.suffix:
        return path.suffix == ".py"
    with path.open("rb") as file:
        return re.match(rb"#!.*python", file.readline(200)) is not None


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of the docstrings of a file's module, classes and functions."""
    for node in ast.walk(tree):
        named = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, named) and (words := ast.get_docstring(node)):
            yield node.body[0].lineno, words


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of a file's strings of several words, save docstrings."""
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    apart = {id(value) for value in statements}
    for node in ast.walk(tree):
        constant = isinstance(node, ast.Constant) and id(node) not in apart
        if constant and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


@cache
def texts_of(folder: str) -> dict[str, list[tuple[str, str]]]:
    """Return place and text of the docstrings and of the messages of a folder's code."""
    read: dict[str, list[tuple[str, str]]] = {"docstrings": [], "messages": []}
    for path in filter(is_python, tracked(folder)):
        if path == Path(__file__):
            continue  # it has the words that it looks for
        tree = ast.parse(path.read_text())
        for kind, texts in (("docstrings", docstrings), ("messages", messages)):
            read[kind] += [(f"{path.relative_to(ROOT)}:{n}", text) for n, text in texts(tree)]
    assert read["docstrings"], f"no text in {folder}/"
    return read


def matching(folder: str, kind: str, pattern: re.Pattern[str]) -> list[str]:
    """Return place and match of the texts of a folder's code that match."""
    texts = ((place, pattern.search(text)) for place, text in texts_of(folder)[kind])
    return [f"{place} … {match[0]} …" for place, match in texts if match]


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_name_the_thing(folder):
    found = matching(folder, "docstrings", re.compile(rf"\A(?:{QUESTION.pattern})"))
    assert not found, "begin with the thing, not with a question word:\n" + "\n".join(found)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("pattern", [RELATIVE, CLAUSE])
def test_few_docstrings_hang_a_clause_on_a_preposition_or_on_what(folder, pattern):
    found = matching(folder, "docstrings", pattern)
    most = len(texts_of(folder)["docstrings"]) * MOST_CLAUSES
    assert len(found) <= most, "two short sentences are clearer:\n" + "\n".join(found)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("kind", ["docstrings", "messages"])
def test_docstrings_and_messages_name_the_actor(folder, kind):
    found = matching(folder, kind, DIALECT)
    assert not found, "name the actor:\n" + "\n".join(found)


def test_pages_and_options_name_the_actor():
    named = ["README.md", "CONTRIBUTING.md", "docs/*.md", "roles", "playbooks", "inventory"]
    pages = [path for name in named for path in tracked(name) if path.suffix in (".md", ".yml")]
    lines = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in pages
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if DIALECT.search(line)
    ]
    assert not lines, "name the actor:\n" + "\n".join(lines)


BLOCK = ("block", "rescue", "always")


class Tasks(yaml.SafeLoader):
    """Reads playbooks, with nothing for Ansible's own tags."""


Tasks.add_multi_constructor("!", lambda loader, suffix, node: None)


def task_names(content: Any) -> Iterator[str]:
    """Yield the names of tasks, blocks and handlers; those of plays are titles."""
    for entry in content if isinstance(content, list) else []:
        if isinstance(entry, dict):
            play = "hosts" in entry or any("import_playbook" in key for key in entry)
            if not play and isinstance(entry.get("name"), str):
                yield entry["name"]
            for part in (
                "tasks",
                "pre_tasks",
                "post_tasks",
                "handlers",
                "block",
                "rescue",
                "always",
            ):
                yield from task_names(entry.get(part))


def test_names_of_tasks_are_imperatives():
    files = [
        path
        for folder in ("roles", "playbooks", "*.yml")
        for path in tracked(folder)
        if path.suffix == ".yml" and path.relative_to(ROOT).parts[0] not in ("tests", "inventory")
    ]
    names = [
        (path, name)
        for path in files
        for name in task_names(yaml.load(path.read_text(), Tasks))  # a subclass of SafeLoader
    ]
    assert names
    others = [
        f"{path.relative_to(ROOT)}: {name}" for path, name in names if not IMPERATIVE.match(name)
    ]
    assert not others, "begin with a verb (a new one is added here):\n" + "\n".join(others)


@pytest.mark.parametrize(
    ("pattern", "words", "matches"),
    [
        (QUESTION, "What a node reports.", True),
        (QUESTION, "Return what a node reports.", True),
        (QUESTION, "Return whether a node reports.", False),
        (RELATIVE, "a run whose nodes leave", False),
        (RELATIVE, "a run for\nwhich nodes wait", True),
        (RELATIVE, "a run for which nodes wait", True),
        (CLAUSE, "name what it needs", True),
        (CLAUSE, "say what to do", False),
        (DIALECT, "Nobody waits.", True),
        (DIALECT, "The supervisor waits.", False),
    ],
)
def test_patterns_tell_the_dialect_from_plain_words(pattern, words, matches):
    assert bool(pattern.search(words)) == matches
