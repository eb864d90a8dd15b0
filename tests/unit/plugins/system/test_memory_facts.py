"""A node's memory facts, with a stand-in of the driver's program."""

from __future__ import annotations

import sys

from ansible.module_utils.hearth_node.driver import gpu_use
from ansible.module_utils.hearth_node.system.memory import inspect_memory

from hearth.fit.capacity import GIB, Room
from hearth_controller.launch.answers import Inspection
from hearth_controller.launch.fit import rooms_of

GPU = (
    "<gpu><product_name>{}</product_name><fb_memory_usage><total>{}</total>"
    "<reserved>{}</reserved><used>{}</used></fb_memory_usage></gpu>"
)
SMI = "".join(
    GPU.format(name, *memory)
    for name, *memory in (
        ("RTX 4070 Laptop GPU", "8188 MiB", "250 MiB", "1100 MiB"),
        ("NVIDIA GB10", "N/A", "N/A", "N/A"),
    )
)


def test_cards_and_free_memory_are_told(program, tmp_path):
    program("nvidia-smi", f"echo '<log>{SMI}</log>'")
    meminfo = tmp_path / "proc" / "meminfo"
    meminfo.parent.mkdir()
    meminfo.write_text("MemTotal: 16384000 kB\nMemAvailable: 12582912 kB\nHugePages_Total: 0\n")
    gpus = [
        {"name": "RTX 4070 Laptop GPU", "memory_mib": 8188, "room_mib": 8188 - 250 - 1100},
        {"name": "NVIDIA GB10", "memory_mib": None, "room_mib": None},
    ]
    gpus = [gpu | {"programs": []} for gpu in gpus]
    facts = {"gpus": gpus, "free_mib": 12_288, "total_mib": 16_000, "cuda": True}
    facts |= {"cards": [], "prime_off": False, "trouble": ""}
    assert inspect_memory("/nowhere/python", str(tmp_path)) == facts
    # What a run of Hearth's holds is free for the next one.
    (held, _), _ = gpu_use.use_of_gpus(())
    held |= {"room_mib": 7638, "programs": [{"name": "game", "mib": 300}]}
    (card,) = inspect_memory("/nowhere/python", str(tmp_path), used=[held])["gpus"]
    assert (card["room_mib"], card["programs"]) == (7638, [["game", 300]])
    # The tests' own torch is without CUDA, which leaves the card unused.
    assert inspect_memory(sys.executable, str(tmp_path)) == facts | {"cuda": False}


def test_a_driver_that_fails_is_none(program):
    program("nvidia-smi", "echo Failed to initialize NVML; exit 9")
    said = inspect_memory("/nowhere/python")
    assert said["gpus"] == []
    assert "Failed to initialize NVML" in said["trouble"]


def test_cards_on_the_bus_are_those_of_this_machine_that_are_nvidias(program, tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 1 kB\nMemAvailable: 1 kB\n")
    for slot, vendor, device, driver in (
        ("01:00.0", "10de", "2c05", "nouveau"),
        ("02:00.0", "10de", "2482", "vfio-pci"),
        ("00:02.0", "8086", "a780", "i915"),
    ):
        folder = tmp_path / "sys/bus/pci/devices" / f"0000:{slot}"
        folder.mkdir(parents=True)
        for name, text in {"vendor": vendor, "device": device, "class": "030000"}.items():
            (folder / name).write_text(f"0x{text}\n")
        (folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    assert inspect_memory("/nowhere/python", str(tmp_path))["cards"] == ["2c05"]


def test_nodes_of_one_computer_share_its_memory():
    def answer(one_computer: bool) -> Inspection:
        own = {"nproc": 0, "one_computer": one_computer}
        memory = {"gpus": [], "free_mib": 12_288, "cuda": False}
        return Inspection(own, memory)

    half = Room(6 * GIB, ranks=2)
    here, alone = answer(True), answer(False)
    assert rooms_of({"a": here, "b": here}) == {"a": [half], "b": [half]}
    assert rooms_of({"a": alone}) == {"a": [Room(12 * GIB)]}
    assert rooms_of({"a": alone}, 2.0)["a"][0].limited
