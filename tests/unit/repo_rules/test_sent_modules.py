"""Python that Ansible sends to nodes, where no package `hearth` can be imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from support.repository import ROOT

_PLACES = {
    "ansible.module_utils.hearth_node": ROOT / "plugins" / "module_utils" / "hearth_node",
    "ansible.module_utils.hearth": ROOT / "training" / "hearth",
}


def file_of(module: str) -> Path | None:
    """Return the file of a module that Ansible finds for modules; None if it is none of them."""
    for prefix, folder in _PLACES.items():
        if module == prefix or module.startswith(f"{prefix}."):
            path = folder.joinpath(*module.removeprefix(prefix).strip(".").split("."))
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    return file
    return None


def imports(file: Path) -> Iterator[ast.ImportFrom]:
    return (
        each for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.ImportFrom)
    )


def sent() -> set[Path]:
    """Return the files that modules import, themselves or through others."""
    found: set[Path] = set()
    waiting = list((ROOT / "plugins" / "modules").rglob("*.py"))
    while waiting:
        here = waiting.pop()
        for each in imports(here):
            names = [alias.name for alias in each.names]
            if each.level:
                folder = here.parents[each.level - 1].joinpath(*(each.module or "").split("."))
                near = (folder, *(folder / name for name in names))
                new = {
                    path.with_suffix(".py") for path in near if path.with_suffix(".py").is_file()
                }
            else:
                modules = (each.module, *(f"{each.module}.{name}" for name in names))
                new = {file for module in modules if (file := file_of(module))}
            waiting += new - found
            found |= new
    return found


def test_what_is_sent_to_nodes_imports_hearth_only_beside_itself():
    files = sent()
    assert ROOT / "training" / "hearth" / "supervisor" / "cause.py" in files
    absolute = [
        f"{file.relative_to(ROOT)}:{each.lineno} {each.module}"
        for file in files
        for each in imports(file)
        if not each.level and (each.module or "").split(".")[0] == "hearth"
    ]
    assert not absolute, "import these relatively"
