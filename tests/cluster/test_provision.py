"""`ansible-playbook provision.yml` on the local inventory."""

from __future__ import annotations

import pytest
from support.house import NODES, ROOT

pytestmark = pytest.mark.cluster
FOLDERS = {"data", "models", "scripts", "logs", "config", "results", "checkpoints"}


def test_check_mode_foretells_and_changes_nothing(house):
    status, screen = house.play("provision.yml", "--check")
    assert status == 0
    assert "changed on desk, laptop" in screen
    assert not (house.folder / "data").exists()


def test_this_computer_gets_its_workspaces_and_a_second_time_nothing(house):
    status, screen = house.play("provision.yml")
    assert status == 0
    assert "this computer alone" in screen
    assert "-i inventory/" in screen
    for node in NODES:
        assert {path.name for path in house.workspace(node).iterdir()} == FOLDERS
        code = house.workspace(node) / "scripts" / "train_distributed.py"
        assert code.read_bytes() == (ROOT / "training" / "train_distributed.py").read_bytes()

    status, screen = house.play("provision.yml")
    assert status == 0
    assert "desk changed=0 · laptop changed=0" in screen


def test_code_that_was_changed_on_a_node_is_mended(house):
    house.play("playbooks/workspace.yml")
    scripts = house.workspace("laptop") / "scripts"
    (scripts / "hearth" / "base" / "errors.py").write_text("broken")
    (scripts / "stale.py").write_text("left over")
    (scripts / "hearth" / "base" / "text.py").unlink()
    status, screen = house.play("playbooks/workspace.yml")
    assert status == 0
    assert "changed on laptop\n" in screen
    assert not (scripts / "stale.py").exists()
    for name in ("base/errors.py", "base/text.py"):
        assert (scripts / "hearth" / name).read_bytes() == (
            ROOT / "training" / "hearth" / name
        ).read_bytes()
    assert "changed=0" in house.play("playbooks/workspace.yml")[1]


def test_v_shows_what_ansible_shows(shared):
    status, screen = shared.play("playbooks/inventory.yml", "-v")
    assert status == 0
    assert "TASK [" in screen
    assert "PLAY RECAP" in screen
