"""The commands in the pages: each `hearth` command is one that hearth understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.repository import ROOT

from hearth_controller.cli import main
from hearth_controller.cli.verbs import VERBS

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^ *```\w*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
BETWEEN = re.compile(r"`(?:\S*/)?hearth ([a-z][^`]*)`")
WITHOUT_SHOW = {"init", "use", "update", "watch"}
"""Verbs that play no playbook, or do so in ways of their own."""


def commands(page: str) -> list[list[str]]:
    """Return the words behind `hearth` of the commands that stand in blocks of a page."""
    lines = (
        line.strip()
        for block in FENCE.findall(page)
        for line in block.replace("\\\n", " ").splitlines()
    )
    found = (shlex.split(line, comments=True) for line in lines if line.startswith("hearth "))
    return [words[1:] for words in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_hearth_understands_every_command_in_the_pages(page: Path, capsys):
    for verb, *words in commands(page.read_text(encoding="utf-8")):
        assert verb in VERBS
        if verb not in WITHOUT_SHOW:
            assert main([verb, *words, "--show"]) == 0, f"hearth {shlex.join([verb, *words])}"
            assert capsys.readouterr().out.startswith("ansible-playbook ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_verb_named_in_a_sentence_exists(page: Path):
    named = (found.split()[0] for found in BETWEEN.findall(page.read_text(encoding="utf-8")))
    assert sorted({*named} - {*VERBS, "completion"}) == []


def test_commands_are_found_in_blocks_without_their_comments():
    page = (
        "`hearth no` hearth no\n```\nhearth stop a   # ends\nhearth train m \\\n  --epochs 2\n```\n"
    )
    assert commands(page) == [["stop", "a"], ["train", "m", "--epochs", "2"]]
