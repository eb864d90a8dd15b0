"""Modules run with the Python that a machine brings along: 3.10 on Ubuntu 22.04."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.repository import ROOT

NEW = {
    "datetime": {"UTC"},
    "enum": {"StrEnum", "ReprEnum", "verify"},
    "typing": {"Self", "Never", "LiteralString", "assert_never", "reveal_type", "override"},
    "asyncio": {"timeout", "TaskGroup", "Runner"},
    "contextlib": {"chdir"},
}
"""Names of the standard library that Python 3.10 lacks, among those a person might use."""

_SHIPPED = re.compile(r"ansible\.module_utils\.hearth((?:\.\w+)+)")


def of_modules() -> Iterator[Path]:
    """Yield the files that Ansible sends along with modules."""
    own = [
        *(ROOT / "plugins/modules").rglob("*.py"),
        *(ROOT / "plugins/module_utils").rglob("*.py"),
    ]
    waiting, seen = own, set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        yield path
        text = path.read_text()
        for name in {*_SHIPPED.findall(text), *re.findall(r"^from hearth((?:\.\w+)+)", text, re.M)}:
            place = ROOT / "training/hearth" / name[1:].replace(".", "/")
            waiting += [each for each in (place.with_suffix(".py"), place / "__init__.py")
                        if each.exists()]  # fmt: skip


@pytest.mark.parametrize("path", sorted({*of_modules()}), ids=lambda path: path.stem)
def test_what_modules_import_is_there_in_python_310(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not NEW.get(node.module or "", set()) & {each.name for each in node.names}
        elif isinstance(node, ast.Import):
            assert "tomllib" not in {each.name for each in node.names}
