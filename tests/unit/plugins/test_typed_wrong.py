"""Commands that are typed wrong, or in the wrong folder: each is answered with what to do."""

from __future__ import annotations

import sys

import pytest
from support.facts import assert_names
from support.programs import run
from support.repository import ROOT
from support.rotated import in_turn

PLAY = (sys.executable, "-m", "ansible", "playbook")


@pytest.mark.parametrize(
    "playbook", ["train.yml", *in_turn("provision.yml", "playbooks/status.yml")]
)
def test_a_playbook_started_from_another_folder_says_where_to_start_it(tmp_path, playbook):
    done = run(*PLAY, "--syntax-check", ROOT / playbook, cwd=tmp_path)
    assert done.returncode != 0
    assert_names(done.stderr, "read no ansible.cfg", "the folder of train.yml")


def test_fewer_lines_than_none_are_refused(tmp_path):
    words = ("playbooks/logs.yml", "-e", "lines=-5")
    done = run(*PLAY, *words, cwd=ROOT, XDG_DATA_HOME=str(tmp_path))
    assert done.returncode != 0
    assert_names(done.stdout, "-e lines", "'-5'", "0 or more")


@pytest.mark.parametrize(
    ("playbook", "word"), [("train.yml", "run"), *in_turn(("playbooks/logs.yml", "run"))]
)
def test_a_value_that_ansible_cuts_at_a_blank_is_refused(tmp_path, playbook, word):
    done = run(*PLAY, playbook, "-e", f"{word}=a b", cwd=ROOT, XDG_DATA_HOME=str(tmp_path))
    assert done.returncode != 0
    assert_names(done.stdout, f"{word}=a b", "'b'", "quote")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("cluster:\n  hosts:\n    desk:\n\tcluster_address: 10.0.0.1\n", ["hosts.yml:4", "YAML"]),
        *in_turn(
            ("cluster: [hosts: {\n", ["hosts.yml:2", "YAML"]),
            (None, ["home", "no such inventory"]),
        ),
    ],
)
def test_an_inventory_that_cannot_be_read_is_named_with_its_line(tmp_path, text, facts):
    home = tmp_path / "home"
    if text:
        home.mkdir()
        (home / "hosts.yml").write_text(text)
    done = run(*PLAY, "-i", home, "playbooks/inventory.yml", cwd=ROOT)
    assert done.returncode != 0
    assert_names(done.stdout, *facts)
    assert "'cluster'" not in done.stdout
