"""`ansible-playbook provision.yml` on the local inventory."""

from __future__ import annotations

import sys

import pytest
import yaml
from support.facts import assert_line, assert_names
from support.local_cluster import NODES
from support.programs import stand_in
from support.repository import ROOT

from hearth import __version__

pytestmark = pytest.mark.cluster
FOLDERS = {"data", "models", "scripts", "logs", "config", "results", "checkpoints", "queue"}
MARK = ".hearth-workspace"
FILES = {"README.md", "cluster_config.yaml", "hearth-lend", "launch_cluster.sh"}


@pytest.mark.rotated
def test_check_mode_foretells_and_changes_nothing(local):
    screen = local.play("provision.yml", "--check")
    assert "changed on desk, laptop" in screen
    assert not (local.folder / "data").exists()


@pytest.mark.rotated
def test_this_computer_gets_its_workspaces_and_a_second_time_nothing(local):
    screen = local.play("provision.yml")
    assert "this computer alone" in screen
    assert "-i inventory/" in screen
    for node in NODES:
        names = {path.name for path in local.workspace(node).iterdir()}
        assert names == {*FOLDERS, *FILES, MARK}
        code = local.workspace(node) / "scripts" / "train_distributed.py"
        assert code.read_bytes() == (ROOT / "training" / "train_distributed.py").read_bytes()

    config = yaml.safe_load((local.workspace("laptop") / "cluster_config.yaml").read_text())
    assert config == {
        "node": "laptop",
        "python": sys.executable,
        "models": str(local.folder / "cache" / "hearth" / "models"),
        "nodes": [
            {"name": name, "rank": rank, "address": f"127.0.0.{rank + 1}"}
            | {"interface": "lo", "nproc": 1}
            for rank, name in enumerate(NODES)
        ],
    }
    readme = (local.workspace("laptop") / "README.md").read_text()
    assert_names(readme, "laptop", __version__, "launch_cluster.sh 1")

    screen = local.play("provision.yml")
    assert "desk changed=0 · laptop changed=0" in screen


@pytest.mark.rotated
def test_nodes_with_one_workspace_are_kept_apart_or_it_is_said_what_is_in_the_way(local):
    """As in a home that machines share."""
    group, folder = local.checkout / "inventory/local/group_vars", local.folder / "all"
    settings = yaml.safe_load((group / "cluster.yml").read_text())
    settings["hearth_workspace"] = str(folder)
    (group / "cluster.yml").write_text(yaml.safe_dump(settings))
    stage = "playbooks/provision/workspace.yml"
    cure = f'hearth_workspace: "{folder}/{{{{ inventory_hostname }}}}"'
    screen = local.play(stage, status=2)  # the settings would hide this file
    assert_names(" ".join(screen.split()), "desk, laptop", "no folder group_vars/cluster", cure)
    (group / "cluster").mkdir()
    (group / "cluster.yml").rename(group / "cluster" / "machines.yml")
    screen = local.play(stage, "-e", f"hearth_workspace={folder}", status=2)
    assert_names(" ".join(screen.split()), "desk, laptop", "after -e", cure)
    assert_names(
        " ".join(local.play(stage).split()), "desk, laptop share a home", "shared_home.yml"
    )
    for node in NODES:
        assert (folder / node / "scripts" / "hearth").is_dir()
    assert not (folder / "scripts").exists()
    assert "desk changed=0 · laptop changed=0" in local.play(stage)


@pytest.mark.rotated
def test_each_node_computes_by_itself_and_one_that_cannot_use_its_gpu_is_named(local):
    """The variables of the inventory reach the nodes here too: one has a stand-in of nvidia-smi."""
    card = "NVIDIA GeForce RTX 3070 Ti, 8192, 580.126.09, 8.6"
    smi = stand_in(local.folder / "bin" / "nvidia-smi", f'echo "{card}"')
    hosts = local.checkout / "inventory" / "local" / "hosts.yml"
    inventory = yaml.safe_load(hosts.read_text())
    path = {"PATH": f"{smi.parent}:{local.environment['PATH']}"}
    inventory["cluster"]["hosts"]["laptop"]["hearth_environment"] = path
    hosts.write_text(yaml.safe_dump(inventory))
    local.play("playbooks/provision/workspace.yml")

    screen = local.play(
        "playbooks/verify.yml", "-e", "single=on", "-e", "python_lock=gpu", status=2
    )
    assert_line(screen, "✓ desk", "cpu fp32")
    assert_line(screen, "✗ laptop", "RTX 3070 Ti", "580.126.09")
    assert "desk: There is no NVIDIA GPU here" in screen
    said = " ".join(screen.split()).split(" laptop: PyTorch ")[1]
    assert_names(said, "a build without CUDA", "provision --tags python")
    screen = local.play("playbooks/verify.yml", "-e", "single=on", "-e", "python_lock=cpu")
    assert_line(screen, "! laptop", "RTX 3070 Ti")
    assert "by itself" in screen


@pytest.mark.rotated
def test_v_shows_what_ansible_shows(shared):
    screen = shared.play("playbooks/inventory.yml", "-v")
    assert "TASK [" in screen
    assert "PLAY RECAP" in screen
