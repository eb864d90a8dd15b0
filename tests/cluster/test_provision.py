"""`ansible-playbook provision.yml` on the local inventory."""

from __future__ import annotations

import pytest
from support.house import NODES, ROOT

pytestmark = pytest.mark.cluster
FOLDERS = {"data", "models", "scripts", "logs", "config", "results", "checkpoints"}
MARK = ".hearth-workspace"


def test_check_mode_foretells_and_changes_nothing(house):
    screen = house.play("provision.yml", "--check")
    assert "changed on desk, laptop" in screen
    assert not (house.folder / "data").exists()


def test_this_computer_gets_its_workspaces_and_a_second_time_nothing(house):
    screen = house.play("provision.yml")
    assert "this computer alone" in screen
    assert "-i inventory/" in screen
    for node in NODES:
        names = {path.name for path in house.workspace(node).iterdir()}
        assert names == {*FOLDERS, MARK}
        code = house.workspace(node) / "scripts" / "train_distributed.py"
        assert code.read_bytes() == (ROOT / "training" / "train_distributed.py").read_bytes()

    screen = house.play("provision.yml")
    assert "desk changed=0 · laptop changed=0" in screen


def test_v_shows_what_ansible_shows(shared):
    screen = shared.play("playbooks/inventory.yml", "-v")
    assert "TASK [" in screen
    assert "PLAY RECAP" in screen
