"""The house plan: packages form no circle, and each plugin stands in the folder of its concern."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.repository import ROOT

HOUSES = {
    "hearth": ROOT / "training" / "hearth",
    "hearth_controller": ROOT / "controller" / "hearth_controller",
    "ansible.module_utils.hearth_node": ROOT / "plugins" / "module_utils" / "hearth_node",
}


def imported(path: Path) -> Iterator[str]:
    """Yield the full names of all modules and members that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (each.value for each in node.args if isinstance(each, ast.Constant))


def packages_of(house: str) -> dict[str, set[str]]:
    """Return by package of a house the packages of the same house that it imports."""
    found: dict[str, set[str]] = {}
    for path in HOUSES[house].rglob("*.py"):
        own, *inside = path.relative_to(HOUSES[house]).parts
        if not inside:
            continue
        found.setdefault(own, set())
        for name in imported(path):
            if name.startswith(f"{house}."):
                other = name.removeprefix(f"{house}.").partition(".")[0]
                if other != own and (HOUSES[house] / other).is_dir():
                    found[own].add(other)
    return found


@pytest.mark.parametrize("house", HOUSES)
def test_no_package_imports_another_that_imports_it(house):
    packages = packages_of(house)
    assert len(packages) > 5
    try:
        TopologicalSorter(packages).prepare()
    except CycleError as error:
        pytest.fail(f"{house}: a circle of packages: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("house", ["hearth", "hearth_controller"])
def test_every_module_lies_in_a_package(house):
    loose = [path.name for path in HOUSES[house].glob("*.py") if path.name != "__init__.py"]
    assert not loose


@pytest.mark.parametrize(
    ("room", "strangers"),
    [("training", {"ansible", "hearth_controller"}), ("controller", {"ansible"})],
)
def test_only_plugins_know_ansible_and_no_node_knows_the_controller(room, strangers):
    for path in (ROOT / room).rglob("*.py"):
        assert not strangers & {name.partition(".")[0] for name in imported(path)}, path


@pytest.mark.parametrize("kind", ["action", "modules"])
def test_each_plugin_stands_in_the_folder_of_its_concern(kind):
    folder = ROOT / "plugins" / kind
    assert not list(folder.glob("*.py"))
    assert len(list(folder.glob("*/hearth_*.py"))) > 20


def test_a_test_is_found_in_a_room():
    assert not list((ROOT / "tests" / "unit").glob("test_*.py"))


def test_no_two_files_of_tests_have_the_same_name():
    """pytest imports each by its name alone, and refuses the second one."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_each_folder_of_module_utils_is_a_package():
    """Ansible ships a module's imports only from packages that say so."""
    house = HOUSES["ansible.module_utils.hearth_node"]
    folders = {path.parent for path in house.rglob("*.py")}
    assert all((folder / "__init__.py").is_file() for folder in folders)
