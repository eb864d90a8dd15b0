"""The command that sets a node's choice on lending, as the verb calls it on the node."""

from __future__ import annotations

import sys

import pytest
from support.facts import assert_names
from support.modules import call
from support.repository import ROOT

from hearth.lend.choice import OFF, choice_file, read


@pytest.fixture
def lend(workspace):
    """Return a function that calls the module for a node whose code is this computer's."""
    (workspace / "scripts" / "hearth").rmdir()
    (workspace / "scripts").rmdir()
    (workspace / "scripts").symlink_to(ROOT / "training")
    node = {"workspace": str(workspace), "python": sys.executable, "node": "tower"}

    def lend(word="status", end="", **more):
        command = ["hearth.supervisor.lend", word, "--json", "--until", end]
        return call("hearth_command", command=command, dry_run=["--dry-run"], **node | more)

    return lend


def test_a_node_gets_its_word_once(lend, workspace):
    first = lend(word="off", end="07:00")
    assert first["changed"]
    assert (first["facts"]["word"], first["facts"]["run"]) == ("off", "")
    assert not lend(word="off", end="07:00")["changed"]
    assert read(workspace).word == OFF
    assert lend(word="auto")["changed"]
    assert not lend(word="auto")["changed"]


def test_to_look_changes_nothing(lend, workspace):
    answer = lend()
    assert (answer["changed"], answer["facts"]["word"]) == (False, "auto")
    assert not choice_file(workspace).exists()


def test_check_mode_foretells_and_writes_nothing(lend, workspace):
    answer = lend(check=True, word="off")
    assert (answer["changed"], answer["facts"]["word"]) == (True, "off")
    assert not choice_file(workspace).exists()


def test_what_is_wrong_is_a_finding(lend, tmp_path):
    (finding,) = lend(word="off", end="soon")["findings"]
    assert_names(finding, "'soon'", "23:00")
    (finding,) = lend(word="off", workspace=str(tmp_path / "none"))["findings"]
    assert_names(finding, "no training code", "hearth provision")
