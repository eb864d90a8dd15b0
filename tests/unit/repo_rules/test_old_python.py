"""Files that Ansible sends to nodes: they run with Python 3.10 and without `hearth`."""

from __future__ import annotations

import ast
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

_PLACES = {
    "ansible.module_utils.hearth_node": ROOT / "plugins" / "module_utils" / "hearth_node",
    "ansible.module_utils.hearth": ROOT / "training" / "hearth",
    "hearth": ROOT / "training" / "hearth",
}


def imports(path: Path) -> Iterator[ast.ImportFrom]:
    tree = ast.parse(path.read_text())
    return (each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom))


def imported(path: Path) -> Iterator[Path]:
    """Yield the files of Hearth that a file imports names from, or as names of a package."""
    for each in imports(path):
        if each.level:
            folder = path.parents[each.level - 1].joinpath(*(each.module or "").split("."))
        else:
            module = f"{each.module}."
            prefix = next((known for known in _PLACES if module.startswith(f"{known}.")), None)
            if prefix is None:
                continue
            inside = module.removeprefix(f"{prefix}.").rstrip(".")
            folder = _PLACES[prefix].joinpath(*inside.split("."))
        for place in (folder, *(folder / alias.name for alias in each.names)):
            files = (place.with_suffix(".py"), place / "__init__.py")
            yield from (file for file in files if file.is_file())


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
        waiting += imported(path)


@pytest.mark.parametrize("path", sorted({*of_modules()}), ids=lambda path: path.stem)
def test_what_modules_import_is_there_in_python_310(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not NEW.get(node.module or "", set()) & {each.name for each in node.names}
        elif isinstance(node, ast.Import):
            assert "tomllib" not in {each.name for each in node.names}


def test_what_is_sent_imports_hearth_only_beside_itself():
    """On a node no package `hearth` can be imported while a module runs."""
    assert ROOT / "training" / "hearth" / "supervisor" / "cause.py" in {*of_modules()}
    absolute = [
        f"{path.relative_to(ROOT)}:{each.lineno} {each.module}"
        for path in of_modules()
        for each in imports(path)
        if not each.level and (each.module or "").split(".")[0] == "hearth"
    ]
    assert not absolute, "import these relatively"
