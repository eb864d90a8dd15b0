"""The rules from sensor readings to "the owner uses this machine"."""

from __future__ import annotations

import pytest

from hearth.base.nvml import GpuProcess
from hearth.lend.lender import CpuLoad, Reading, certain_use, likely_use, short_name

CERTAIN, LIKELY, NONE = "certain", "likely", "none"


def judged(reading: Reading) -> str:
    return CERTAIN if certain_use(reading) else LIKELY if likely_use(reading) else NONE


def draws(memory: int | None, sm: float | None, name: str = "game.x86_64") -> GpuProcess:
    return GpuProcess(70, memory, sm, graphics=True, name=name)


def computes(memory: int | None, sm: float | None, name: str = "blender") -> GpuProcess:
    return GpuProcess(71, memory, sm, graphics=False, name=name)


@pytest.mark.parametrize(
    ("process", "verdict"),
    [
        (computes(2048, 95), CERTAIN),
        (computes(64, 0), CERTAIN),  # it holds memory that the run may need
        (computes(63, 9), NONE),
        (computes(10, 10), LIKELY),
        (computes(None, None), CERTAIN),  # the driver of WSL tells neither
        (computes(None, 4), NONE),
        (computes(None, 40), LIKELY),
        (draws(3000, 97), CERTAIN),
        (draws(1024, 0), CERTAIN),  # a game that is paused
        (draws(1023, 19), NONE),  # a browser
        (draws(300, 20), LIKELY),  # a game in a small window, or a page that scrolls
        (draws(None, None), NONE),
        (draws(900, 35, "gnome-shell"), NONE),
        (draws(3000, 80, "Xorg"), NONE),
        (draws(3000, 80, "/usr/lib/xorg/Xorg"), NONE),
        (draws(1500, 30, "kwin_wayland"), NONE),
        (draws(1500, 30, "Xorgy-the-game"), CERTAIN),
    ],
)
def test_a_process_on_the_gpu_counts_by_its_memory_or_its_share(process, verdict):
    assert judged(Reading(gpu=(process,))) == verdict


def test_a_desktop_beside_a_game_hides_nothing():
    desktop = tuple(
        GpuProcess(pid, 400, 15, graphics=True, name=name)
        for pid, name in enumerate(("Xorg", "gnome-shell", "Xwayland", "firefox"), start=60)
    )
    assert judged(Reading(gpu=desktop)) == NONE
    assert "game.x86_64 (process 70) draws on the GPU" in certain_use(
        Reading(gpu=(*desktop, draws(2500, 90)))
    )


@pytest.mark.parametrize(
    ("load", "cores", "verdict"),
    [
        (None, 8, NONE),
        (0.0, 8, NONE),
        (0.5, 2, NONE),
        (0.6, 2, LIKELY),
        (0.8, 8, NONE),
        (0.9, 8, LIKELY),
        (1.5, 16, NONE),  # a tenth of the cores
        (1.7, 16, LIKELY),
    ],
)
def test_a_processor_is_in_use_above_half_a_core_or_a_tenth_of_all(load, cores, verdict):
    reading = Reading(load=None if load is None else CpuLoad(load, "make"), cores=cores)
    assert judged(reading) == verdict
    if verdict == LIKELY:
        assert likely_use(reading) == (
            f"other programs take {load:.1f} of {cores} cores, make most of all"
        )


def test_a_command_and_the_battery_are_certain():
    assert certain_use(Reading(command="the cat is on it", on_battery=True)) == "the cat is on it"
    assert certain_use(Reading(on_battery=True)) == "it runs on its battery"


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/usr/bin/blender -b scene.blend", "blender"),
        ("C:\\Games\\Half Life\\hl2.exe", "hl2.exe"),
        ("/home/me/My Games/game", "game"),
        ("evil\x1b[2Jname", "evilname"),
        ("x" * 300, "x" * 60),
        ("", ""),
    ],
)
def test_a_program_is_named_without_folder_arguments_and_commands_to_a_terminal(program, name):
    assert short_name(program) == name
