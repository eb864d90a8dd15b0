"""A node's memory facts, with a stand-in of the driver's program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible.module_utils.hearth_node.system.memory import look

from hearth.fit.capacity import GIB, Room
from hearth_controller.launch.fit import rooms_of


@pytest.fixture
def meminfo(tmp_path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(
        "MemTotal:       16384000 kB\nMemAvailable:   12582912 kB\nHugePages_Total: 0\n"
    )
    return path


def test_cards_and_free_memory_are_told(program, meminfo):
    program(
        "nvidia-smi", "echo NVIDIA GeForce RTX 4070 Laptop GPU, 8188; echo NVIDIA GB10, '[N/A]'"
    )
    facts = look("/nowhere/python", meminfo)
    assert facts == {
        "gpus": [
            {"name": "NVIDIA GeForce RTX 4070 Laptop GPU", "memory_mib": 8188},
            {"name": "NVIDIA GB10", "memory_mib": None},
        ],
        "free_mib": 12_288,
        "cuda": True,
    }


def test_a_torch_without_cuda_leaves_the_card_unused(program, meminfo):
    """The tests' own torch is one."""
    program("nvidia-smi", "echo NVIDIA GeForce RTX 4070, 8188")
    assert not look(sys.executable, meminfo)["cuda"]


def test_a_driver_that_fails_is_none(program, meminfo):
    program("nvidia-smi", "echo Failed to initialize NVML; exit 9")
    assert look("/nowhere/python", meminfo)["gpus"] == []


def test_nodes_of_one_computer_share_it_and_who_is_silent_is_left_out():
    def answer(one_computer: bool) -> dict:
        own = {"nproc": 0, "one_computer": one_computer}
        memory = {"gpus": [], "free_mib": 12_288, "cuda": False}
        return {"facts": {"own": own, "memory": memory}}

    here, alone, off = answer(True), answer(False), {"unreachable": True}
    assert rooms_of({"a": here, "b": here}) == {
        "a": Room(6 * GIB, ranks=2),
        "b": Room(6 * GIB, ranks=2),
    }
    assert rooms_of({"a": alone, "b": off}) == {"a": Room(12 * GIB)}
    assert rooms_of({"a": alone}, 2.0)["a"].limited
