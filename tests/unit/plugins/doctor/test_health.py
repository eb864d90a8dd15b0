"""The health of a node, read from the system and from a stand-in of nvidia-smi."""

from __future__ import annotations

import json
import os

import pytest
from support.modules import call


def health(address="127.0.0.2", workspace="/nowhere"):
    return call("hearth_examine", verb="health", address=address, workspace=workspace)["facts"]


def test_this_computer_is_told_of():
    said = health()
    assert said["cores"] == os.cpu_count()
    assert 0 <= said["cpu_percent"] <= 100
    assert 0 < said["memory"]["used_mib"] < said["memory"]["total_mib"]
    assert said["network"]["interface"] == "lo"
    assert said["network"]["received"] >= 0
    assert health("192.0.2.77")["network"] is None  # no interface carries it


def test_a_card_is_told_of_with_what_throttles_it(program):
    cards = (
        "0, NVIDIA GeForce RTX 5070 Ti, 98, 11264, 16303, 71, 284.51, 300.00, 300.00, GPU-5a, "
        "0x0000000000000024\n"
        "1, Old card, [N/A], [N/A], [N/A], 40, [N/A], [N/A], [N/A], GPU-01, [Not Supported]"
    )
    program("nvidia-smi", f"echo '{cards}'")
    said = health()
    assert said["gpu_trouble"] == ""
    first, second = said["gpus"]
    assert first == {
        "index": 0,
        "name": "NVIDIA GeForce RTX 5070 Ti",
        "load_percent": 98,
        "used_mib": 11264,
        "total_mib": 16303,
        "celsius": 71,
        "watts": 284.51,
        "watts_limit": 300,
        "watts_default": 300,
        "limit_cost": None,
        "throttled_by": ["power limit", "heat"],
    }
    assert (second["celsius"], second["watts"], second["throttled_by"]) == (40, None, None)


def test_a_limit_on_power_is_told_of_with_what_it_costs_in_speed(program, tmp_path):
    card = "0, RTX 3070 Ti, 98, 1, 8192, 71, 219.9, 220.00, 290.00, GPU-5a, 0x0000000000000004"
    program("nvidia-smi", f"echo '{card}'")
    speeds = tmp_path / "data" / "speeds"
    speeds.mkdir(parents=True)
    for name, seconds, watts in (("a", 0.5, {}), ("b", 0.625, {"watts": 220.0})):
        case = {"processor": "RTX 3070 Ti 5a", "torch": "2.13.0", **watts}
        text = json.dumps({"sizes": [1, 2], "seconds": [0.4, seconds], "case": case})
        (speeds / f"{name}.json").write_text(text)
        os.utime(speeds / f"{name}.json", (1764150000, 1764150000))
    (gpu,) = health(workspace=str(tmp_path))["gpus"]
    assert (gpu["watts_limit"], gpu["watts_default"]) == (220, 290)
    assert gpu["limit_cost"] == {"slower": 0.2, "measured": "2025-11-26"}


def test_a_driver_that_knows_only_the_old_name_of_the_reasons_is_asked_by_it(program):
    program(
        "nvidia-smi",
        'case "$1" in *clocks_event*) echo \'Field "clocks_event_reasons.active" is not a valid '
        "field to query.'; exit 2;; esac; echo '0, Card, 0, 1, 2, 3, 4, 5, 5, GPU-01, "
        "0x0000000000000001'",
    )
    assert health()["gpus"][0]["throttled_by"] == []  # an idle card is not held back


@pytest.mark.parametrize(
    "script, trouble",
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "mismatch"),
        ("exit 9", "nvidia-smi fails: it does not say why"),
        ("exit 0", "nvidia-smi sees no GPU"),
    ],
)
def test_a_driver_that_does_not_work_says_why(program, script, trouble):
    program("nvidia-smi", script)
    said = health()
    assert said["gpus"] == []
    assert trouble in said["gpu_trouble"]


def test_without_the_drivers_tool_there_is_no_card(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert health()["gpu_trouble"] == "no nvidia-smi"
