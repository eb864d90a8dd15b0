"""The move of a run in the queue: the same on all of its nodes, or an error that says so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.facts import assert_names
from support.programs import stand_in
from support.waiting import HANG

TASKS = Path(__file__).resolve().parents[4] / "playbooks/tasks/move.yml"

PLAY = f"""
- hosts: desk:laptop
  connection: local
  gather_facts: false
  vars:
    plan_inventory: {{words: {{move: night, place: 1}}}}
    hearth_nodes: []
  tasks:
    - ansible.builtin.include_tasks: {TASKS}
"""


def play(folder: Path, broken: str) -> subprocess.CompletedProcess[str]:
    """Move a run on two nodes, with modules that only answer; one fails on a `broken` node."""
    answer = '{"nodes": ["desk", "laptop"], "position": 1.0}'
    stand_in(folder / "library/hearth_runs_show", f"echo '{answer}'")
    refuse = (
        """grep -q position "$1" && grep -q /broken "$1" && echo '{"failed": true, "msg": "no"}'"""
    )
    stand_in(folder / "library/hearth_runs", f"{refuse} || echo '{{\"changed\": true}}'")
    (folder / "play.yml").write_text(PLAY)
    lines = [
        f"{node} hearth_workspace=/{'broken' if node == broken else 'whole'}"
        for node in ("desk", "laptop")
    ]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    config = {"ANSIBLE_LIBRARY": "library", "ANSIBLE_HOME": str(folder / "home")}
    return subprocess.run(
        ["ansible-playbook", "-i", "hosts", "play.yml"],
        cwd=folder,
        env=os.environ | config,
        capture_output=True,
        text=True,
        timeout=HANG,
    )


@pytest.mark.parametrize("broken", ["desk", "laptop"])
def test_a_move_that_fails_on_one_node_says_so_and_how_to_mend_it(tmp_path, broken):
    done = play(tmp_path, broken)
    assert done.returncode == 2
    said = " ".join(done.stdout.split())
    assert_names(said, f"-e move=night: {broken}", "different places on its nodes")
    assert_names(said, "repeat the move")


def test_a_move_that_succeeds_on_all_nodes_is_no_error(tmp_path):
    done = play(tmp_path, broken="")
    assert done.returncode == 0, done.stdout
