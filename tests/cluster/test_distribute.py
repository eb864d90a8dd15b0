"""`playbooks/distribute.yml` on the local inventory: two nodes with caches of their own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cached_model import ID, NAME, make_cached
from support.house import House
from support.lines import assert_line
from support.stand_in_hub import stand_in_hub

pytestmark = pytest.mark.cluster

SIZE = 6 << 20


@pytest.fixture
def home(tmp_path, tiny_model, tiny_data) -> Iterator[House]:
    house = House(tmp_path, tiny_model, tiny_data)
    yield house
    house.close()


def caches(house: House) -> Path:
    """Return the folder with a model cache for each node."""
    return house.folder / "caches"


def distribute(house: House, *arguments: object, **changes: str) -> tuple[int, str]:
    """Play with a model cache for each node, and data files that are always passed on."""
    apart = {"hearth_models": f"{caches(house)}/{{{{ inventory_hostname }}}}"}
    words = ("-e", f"model={ID}", "-e", f"dataset={house.data}", "-e", "distribute_direct_mb=0")
    return house.play(
        "playbooks/distribute.yml", *words, "-e", json.dumps(apart), *arguments, **changes
    )


def weights(house: House, node: str) -> str:
    path = caches(house) / node / NAME / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def staged(house: House, node: str) -> list[bytes]:
    folder = house.workspace(node) / "data"
    return [path.read_bytes() for path in folder.glob(f"*-{house.data.name}")]


def test_the_node_that_has_the_model_sends_it_and_once_more_nothing_is_changed(home):
    make_cached(caches(home) / "laptop", SIZE)
    assert home.play("playbooks/workspace.yml")[0] == 0
    status, screen = distribute(home, "--check")
    assert status == 0
    assert f"{NAME}: laptop → desk" in screen
    assert f"{home.data.name}: laptop → desk" in screen
    assert not (caches(home) / "desk").exists()

    status, screen = distribute(home)
    assert status == 0
    assert_line(screen, "desk", "6.3 MB from laptop")
    assert_line(screen, NAME, "whole", "desk, laptop")
    assert weights(home, "desk") == weights(home, "laptop")
    assert staged(home, "desk") == staged(home, "laptop") == [home.data.read_bytes()]

    status, screen = distribute(home)
    assert status == 0
    assert "→" not in screen
    assert "desk changed=0 · laptop changed=0" in screen


def test_what_nobody_has_is_downloaded_by_one_node_only(home):
    with stand_in_hub() as hub:
        hub.models[ID] = home.model
        online = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}
        status, screen = distribute(home, **online)
    assert status == 0
    assert_line(screen, NAME, "desk", "downloads")
    assert weights(home, "desk") == weights(home, "laptop")
    got = [path for path in hub.asked if path.endswith("/model.safetensors")]
    assert 1 <= len(got) <= 2  # its size, and then itself


def test_nodes_with_one_cache_are_sent_nothing(home):
    make_cached(home.folder / "cache" / "hearth" / "models", SIZE)
    words = ("-e", f"model={ID}", "-e", "dataset=homelab-qa")
    status, screen = home.play("playbooks/distribute.yml", *words)
    assert status == 0
    assert_line(screen, "laptop shares", "desk")
    assert_line(screen, "homelab-qa.jsonl", "code")


@pytest.mark.rotated
def test_a_shared_folder_holds_model_and_data_once(home):
    shared = home.folder / "shared"
    make_cached(shared / "models", SIZE)
    given = ("-e", f"hearth_shared={shared}", "-e", f"hearth_models={shared}/models")
    status, screen = distribute(home, *given)
    assert status == 0
    assert f"in {shared}, which all nodes see" in screen
    assert "→" not in screen
    assert len(list((shared / "data").iterdir())) == 1
    assert staged(home, "desk") == staged(home, "laptop") == [home.data.read_bytes()]
    status, screen = distribute(home, *given)
    assert status == 0
    assert "desk changed=0 · laptop changed=0" in screen


def test_a_folder_that_is_not_shared_in_truth_is_refused(home):
    for node in ("desk", "laptop"):
        (home.folder / "not-shared" / node).mkdir(parents=True)
    apart = {"hearth_shared": f"{home.folder}/not-shared/{{{{ inventory_hostname }}}}"}
    status, screen = distribute(home, "-e", json.dumps(apart))
    assert status == 2
    assert "laptop: " in screen
    assert "is not the folder that the first node sees there" in screen
