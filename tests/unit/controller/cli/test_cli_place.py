"""The inventory and the environment that a verb plays with."""

from __future__ import annotations

import pytest

from hearth_controller.cli.paths import Paths
from hearth_controller.cli.place import Place, environment, inventory_of


@pytest.fixture
def paths(tmp_path, monkeypatch):
    monkeypatch.setattr("hearth_controller.cli.place.IN_USE", "inventory/.in-use")
    for folder in ("hearth/inventory/home", "hearth/inventory/other", "me/own"):
        (tmp_path / folder).mkdir(parents=True)
    return Paths(tmp_path / "me", tmp_path / "hearth")


def test_the_nearest_word_on_the_inventory_counts(paths):
    remembered = paths.repository / "inventory" / ".in-use"
    assert inventory_of(None, {}, paths) is None
    remembered.write_text("inventory/home\n")
    assert inventory_of(None, {}, paths) == f"{paths.repository}/inventory/home"
    said = {"ANSIBLE_INVENTORY": "own"}
    assert inventory_of(None, said, paths) == f"{paths.folder}/own"
    assert inventory_of("inventory/other", said, paths) == f"{paths.repository}/inventory/other"
    assert inventory_of("desk,", said, paths) == "desk,"


def test_an_inventory_of_the_checkout_is_named_as_it_is_typed_there(paths):
    place = Place(paths.repository, f"{paths.repository}/inventory/home", paths.folder)
    assert place.shown("status", {}) == "ansible-playbook -i inventory/home playbooks/status.yml"
    place = Place(paths.repository, f"{paths.folder}/own", paths.folder)
    assert f"-i {paths.folder}/own" in place.shown("status", {})


@pytest.mark.parametrize("value", ["C", "POSIX", "xx_YY.UTF-8"])
def test_ansible_gets_a_locale_that_it_takes(monkeypatch, value):
    monkeypatch.setenv("LC_ALL", value)
    assert environment({"PATH": "/bin"})["LC_ALL"] == "C.UTF-8"
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert "LC_ALL" not in environment({"PATH": "/bin"})
