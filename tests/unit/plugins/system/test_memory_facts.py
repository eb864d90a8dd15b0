"""A node's memory facts, with a stand-in of the driver's program."""

from __future__ import annotations

import sys

from ansible.module_utils.hearth_node.system.memory import look

from hearth.fit.capacity import GIB, Room
from hearth_controller.launch.fit import rooms_of


def test_cards_and_free_memory_are_told(program, tmp_path):
    program("nvidia-smi", "echo RTX 4070 Laptop GPU, 8188; echo NVIDIA GB10, '[N/A]'")
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 16384000 kB\nMemAvailable: 12582912 kB\nHugePages_Total: 0\n")
    gpus = [
        {"name": "RTX 4070 Laptop GPU", "memory_mib": 8188},
        {"name": "NVIDIA GB10", "memory_mib": None},
    ]
    facts = {"gpus": gpus, "free_mib": 12_288, "cuda": True}
    assert look("/nowhere/python", meminfo) == facts
    # The tests' own torch is without CUDA, which leaves the card unused.
    assert look(sys.executable, meminfo) == facts | {"cuda": False}


def test_a_driver_that_fails_is_none(program):
    program("nvidia-smi", "echo Failed to initialize NVML; exit 9")
    assert look("/nowhere/python")["gpus"] == []


def test_nodes_of_one_computer_share_it_and_who_is_silent_is_left_out():
    def answer(one_computer: bool) -> dict:
        own = {"nproc": 0, "one_computer": one_computer}
        memory = {"gpus": [], "free_mib": 12_288, "cuda": False}
        return {"facts": {"own": own, "memory": memory}}

    here, alone, off = answer(True), answer(False), {"unreachable": True}
    assert rooms_of({"a": here, "b": here}) == dict.fromkeys("ab", Room(6 * GIB, ranks=2))
    assert rooms_of({"a": alone, "b": off}) == {"a": Room(12 * GIB)}
    assert rooms_of({"a": alone}, 2.0)["a"].limited
