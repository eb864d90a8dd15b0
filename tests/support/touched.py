"""Test files that the files changed in this checkout touch: those that import or name one."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path, PurePosixPath

from support.repository import ROOT

_ROOTS = ("training/", "controller/", "tests/", "scripts/")
_MODULE_UTILS = re.compile(r"plugins/module_utils/(?:\w+/)*?(hearth_node/.*)")
# A change that touches more test files than these touches nearly all: it is one for `--all`.
WIDE = 12
_GENERAL = {"main.yml", "README.md", "__init__.py", "__main__.py", "argument_specs.yml"}


def changed() -> set[str]:
    """Return the files changed since this branch left main; on main, since the commit before.

    Files that git does not know yet are among them. Without git there are none.
    """
    try:
        base = _git("merge-base", "main", "HEAD")
        if base == _git("rev-parse", "HEAD"):
            base = ["HEAD~1"]
        since = _git("diff", "--name-only", *base)
        return {*since, *_git("ls-files", "--others", "--exclude-standard")}
    except (OSError, subprocess.CalledProcessError):
        return set()


def touched_by(files: Iterable[str], tests: Iterable[Path]) -> set[Path]:
    """Return the tests that are among these files, import one or name one.

    An import counts through modules of `support`, and through packages that pass on a name.
    """
    files = set(files)
    modules = {module for file in files if (module := module_of(file))}
    names = {name for file in files if (name := _name_of(file))}
    named = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, sorted(names)))})(?![\w-])")
    return {
        test
        for test in tests
        if str(test.relative_to(ROOT)) in files
        or modules & _imports(test)
        or (names and named.search(test.read_text()))
    }


def module_of(file: str) -> str:
    """Return a file's module as tests import it, such as `hearth.plan.split`; "" if it is none."""
    if not file.endswith(".py"):
        return ""
    found = _MODULE_UTILS.fullmatch(file)
    if found:
        file = f"ansible/module_utils/{found[1]}"
    inside = next((file.removeprefix(root) for root in _ROOTS if file.startswith(root)), file)
    return inside.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _name_of(file: str) -> str:
    """Return the name of this file in tests; "" if there is none."""
    path = PurePosixPath(file)
    if path.parts[0] == "roles" and len(path.parts) > 1:
        return f"roles/{path.parts[1]}"
    if path.name in _GENERAL:
        return ""
    if path.parts[0] == "plugins":
        return "" if path.parts[1] == "module_utils" else path.stem
    return "" if path.suffix == ".py" and path.parts[0] != "scripts" else path.name


def _imports(path: Path) -> set[str]:
    """Return the modules that a test file imports, itself or through modules of `support`."""
    found, waiting = set(), {path}
    read = set()
    while waiting:
        read.add(file := waiting.pop())
        new = _direct(file) - found
        found |= new
        below = (ROOT / "tests" / f"{module.replace('.', '/')}.py" for module in new)
        waiting |= {each for each in below if each.is_file() and each not in read}
    return found


@cache
def _direct(path: Path) -> frozenset[str]:
    """Return the modules that a file imports, and each imported name as if it were a module."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            passed_on = _passed_on(node.module)
            for alias in node.names:
                found |= {node.module, f"{node.module}.{alias.name}"}
                found.add(passed_on.get(alias.name, node.module))
    return frozenset(found)


@cache
def _passed_on(package: str) -> dict[str, str]:
    """Return the defining module of each name that a package passes on."""
    inside = Path(*package.split("."), "__init__.py")
    init = next((ROOT / root / inside for root in _ROOTS if (ROOT / root / inside).is_file()), None)
    if init is None:
        return {}
    return {
        alias.asname or alias.name: node.module
        if node.level == 0
        else f"{package}.{node.module or alias.name}"
        for node in ast.walk(ast.parse(init.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or node.level)
        for alias in node.names
    }


def _git(*words: str) -> list[str]:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()
