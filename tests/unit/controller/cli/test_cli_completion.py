"""Completion as a shell asks for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.repository import ROOT

from hearth_controller.cli.completion import SHELLS, local_runs, nodes_of

INVENTORY = """
all:
  children:
    cluster:
      hosts:
        tower: {cluster_address: 198.51.100.11}
        laptop:
      vars: {hosts: 3}
"""


@pytest.fixture
def complete(tmp_path):
    """A function that returns the completions of a line."""
    (tmp_path / "hosts.yml").write_text(INVENTORY)

    def offered(line):
        done = subprocess.run(
            [sys.executable, "-c", "from hearth_controller.cli import main; main()"],
            env=os.environ
            | {
                "_ARGCOMPLETE": "1",
                "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "offered"),
                "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
                "COMP_LINE": line,
                "COMP_POINT": str(len(line)),
                "ANSIBLE_INVENTORY": str(tmp_path),
            },
            check=False,
        )
        assert done.returncode == 0
        return (tmp_path / "offered").read_text().split("\x0b")

    return offered


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("hearth st", {"status", "stop"}),
        ("hearth train smol", {"smollm2-135m"}),
        ("hearth train --learn", {"--learning-rate"}),
        ("hearth train tiny --schedule co", {"cosine", "constant"}),
        ("hearth export --to ", {"gguf", "ollama", "merged"}),
        ("hearth lend o", {"on", "off"}),
        ("hearth lend off --nodes ", {"tower", "laptop"}),
        ("hearth lend off --nodes tower,", {"tower,laptop"}),
        ("hearth completion ", {*SHELLS}),
    ],
)
def test_what_may_come_next_is_offered(complete, line, wanted):
    assert wanted <= {each.strip() for each in complete(line)}


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_its_script(hearth, shell):
    status, script, _ = hearth("completion", shell)
    assert status == 0
    assert "hearth" in script


def test_the_newest_run_is_offered_first(tmp_path):
    for age, name in enumerate(["new", "old"]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.yml").touch()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / "benchmarks").mkdir()
    assert local_runs(tmp_path) == ["new", "old"]


def test_an_inventory_that_cannot_be_read_offers_nothing(tmp_path):
    (tmp_path / "hosts.yml").write_text("{")
    assert nodes_of(tmp_path) == nodes_of(tmp_path / "none") == []
    assert nodes_of(ROOT / "inventory" / "local") == ["desk", "laptop"]
