"""`playbooks/distribute.yml` on the local inventory: two nodes with caches of their own."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from support.cached_model import ID, NAME, make_cached
from support.facts import assert_line
from support.local_cluster import LocalCluster
from support.stand_in_hub import stand_in_hub

pytestmark = pytest.mark.cluster

SIZE = 6 << 20


def caches(local: LocalCluster) -> Path:
    """Return the folder with a model cache for each node."""
    return local.folder / "caches"


def distribute(local: LocalCluster, *arguments: object, status: int = 0, **changes: str) -> str:
    """Play with a model cache for each node, and data files that are always passed on."""
    apart = {"hearth_models": f"{caches(local)}/{{{{ inventory_hostname }}}}"}
    words = ("-e", f"model={ID}", "-e", f"dataset={local.data}", "-e", "_distribute_direct_mb=0")
    words += ("-e", json.dumps(apart), *arguments)
    return local.play("playbooks/distribute.yml", *words, status=status, **changes)


def weights(local: LocalCluster, node: str) -> str:
    path = caches(local) / node / NAME / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def staged(local: LocalCluster, node: str) -> list[bytes]:
    folder = local.workspace(node) / "data"
    return [path.read_bytes() for path in folder.glob(f"*-{local.data.name}")]


@pytest.mark.rotated
def test_the_node_that_has_the_model_sends_it_and_once_more_nothing_is_changed(local):
    make_cached(caches(local) / "laptop", SIZE)
    local.play("playbooks/provision/workspace.yml")
    screen = distribute(local, "--check")
    assert f"{NAME}: laptop → desk" in screen
    assert f"{local.data.name}: laptop → desk" in screen
    assert not (caches(local) / "desk").exists()

    screen = distribute(local)
    assert_line(screen, "desk", "6.3 MB from laptop")
    assert_line(screen, NAME, "whole", "desk, laptop")
    assert weights(local, "desk") == weights(local, "laptop")
    assert staged(local, "desk") == staged(local, "laptop") == [local.data.read_bytes()]

    screen = distribute(local)
    assert "→" not in screen
    assert "desk changed=0 · laptop changed=0" in screen


@pytest.mark.rotated
def test_what_nobody_has_is_downloaded_by_one_node_only(local):
    with stand_in_hub() as hub:
        hub.models[ID] = local.model
        screen = distribute(local, **hub.variables)
    assert_line(screen, NAME, "desk", "downloads")
    assert weights(local, "desk") == weights(local, "laptop")
    got = [path for path in hub.asked if path.endswith("/model.safetensors")]
    assert 1 <= len(got) <= 2  # its size, and then itself


@pytest.mark.rotated
def test_nodes_with_one_cache_are_sent_nothing(local):
    make_cached(local.folder / "cache" / "hearth" / "models", SIZE)
    words = ("-e", f"model={ID}", "-e", "dataset=homelab-qa")
    screen = local.play("playbooks/distribute.yml", *words)
    assert_line(screen, "laptop shares", "desk")
    assert_line(screen, "homelab-qa.jsonl", "code")


@pytest.mark.rotated
def test_a_shared_folder_holds_model_and_data_once(local):
    shared = local.folder / "shared"
    make_cached(shared / "models", SIZE)
    given = ("-e", f"hearth_shared={shared}", "-e", f"hearth_models={shared}/models")
    screen = distribute(local, *given)
    assert f"in {shared}, which all nodes see" in screen
    assert "→" not in screen
    assert len(list((shared / "data").iterdir())) == 1
    assert staged(local, "desk") == staged(local, "laptop") == [local.data.read_bytes()]
    screen = distribute(local, *given)
    assert "desk changed=0 · laptop changed=0" in screen


@pytest.mark.rotated
def test_a_folder_that_is_not_shared_in_truth_is_refused(local):
    for node in ("desk", "laptop"):
        (local.folder / "not-shared" / node).mkdir(parents=True)
    apart = {"hearth_shared": f"{local.folder}/not-shared/{{{{ inventory_hostname }}}}"}
    screen = distribute(local, "-e", json.dumps(apart), status=2)
    assert "laptop: " in screen
    assert "is not the folder that the first node sees there" in screen
