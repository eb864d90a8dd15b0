"""The sensors: real processes on the processor, stand-ins for NVIDIA's cards and power supplies."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from support.facts import assert_names
from support.nvml import FOLDER, StandInCards
from support.waiting import until

from hearth.base.nvml import Cards
from hearth.lend import choice, sensors
from hearth.lend.choice import LendChoice
from hearth.lend.lender import CpuLoad, Lender, Reading, certain_use, likely_use
from hearth.lend.processes import Process, Processes, used_by_others
from hearth.lend.sensors import LoadMeter, Sensors, on_battery
from hearth.lend.terms import Terms

IDLE = Terms("idle")

BUSY = """
import os
print(os.getpid(), flush=True)
while os.getppid():
    pass
"""
# A program of another session whose parent is gone, as a person's is to a supervisor.
BUSY_STRANGER = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {BUSY!r}], start_new_session=True)
"""


def supply(folder, name: str, **values: str) -> None:
    (folder / name).mkdir(parents=True)
    for key, value in values.items():
        (folder / name / key).write_text(f"{value}\n")


@pytest.fixture
def supplies(tmp_path):
    folder = tmp_path / "power_supply"
    folder.mkdir()
    return folder


@pytest.fixture
def read(tmp_path, supplies):
    """Return a function that reads the sensors of a node with some terms, once or again."""
    made: dict[Terms, Sensors] = {}

    def act(terms: Terms = IDLE, cards: Cards | None = None) -> Reading:
        if terms not in made:
            made[terms] = Sensors(terms, tmp_path, supplies=supplies, find=lambda: cards)
        return made[terms].read()

    yield act
    for each in made.values():
        each.close()


def test_a_busy_program_of_another_session_is_seen_and_a_busy_rank_is_not(read, start):
    rank, stranger, processes = start(BUSY), start(BUSY_STRANGER), Processes()
    rank.stdout.readline()
    busy = int(stranger.stdout.readline())

    def table() -> dict[int, Process]:
        """Return the two alone: other programs of this machine may be busy, too."""
        found = processes.snapshot()
        return {pid: found[pid] for pid in (rank.pid, busy)}

    try:
        stranger.wait()
        before = table()
        until(lambda: min(its.seconds - before[pid].seconds for pid, its in table().items()) >= 0.5)
        after = table()
        used, name = used_by_others(before, after)
        assert used == pytest.approx(after[busy].seconds - before[busy].seconds)
        assert name.startswith("python")
    finally:
        os.kill(busy, 9)


def test_a_node_without_cards_has_the_load_of_its_processor(read, monkeypatch):
    monkeypatch.setattr(sensors, "AVERAGED", 0.5)
    assert read().load is None
    until(lambda: read().load is not None)
    assert read().load.cores >= 0


def test_there_is_no_load_before_it_was_averaged_for_ten_seconds():
    seconds = 0.0
    meter = LoadMeter(lambda: seconds)

    def table(used: float) -> dict[int, Process]:
        return {7: Process(1, "make", 1, used)}

    for second in range(10):
        seconds = float(second)
        assert meter.add(table(2.0 * second)) is None
    for second in range(10, 40):
        seconds = float(second)
        assert meter.add(table(2.0 * second)) == CpuLoad(2.0, "make")
    for second in range(40, 50):  # nothing more is used
        seconds = float(second)
        assert meter.add(table(78.0)).cores == pytest.approx(2.0 * (49 - second) / 10)


def test_a_node_that_is_read_seldom_is_averaged_over_that_time():
    seconds = 0.0
    meter = LoadMeter(lambda: seconds)
    meter.add({7: Process(1, "make", 1, 0.0)})
    seconds = 60.0
    assert meter.add({7: Process(1, "make", 1, 30.0)}) == CpuLoad(0.5, "make")


@pytest.fixture
def card(tmp_path, monkeypatch):
    """Return a stand-in for an NVIDIA card, which this process sees."""
    cards = StandInCards(tmp_path / "nvml.json")
    monkeypatch.setenv("HEARTH_NVML_STANDIN", str(cards.file))
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield cards
    sys.modules.pop("pynvml", None)


def test_with_a_card_a_strangers_program_on_it_is_seen_and_a_rank_is_not(read, card, start):
    cards = Cards.open()
    rank, stranger = start(BUSY), start(BUSY_STRANGER)
    rank.stdout.readline()
    game = int(stranger.stdout.readline())
    try:
        stranger.wait()
        assert read(cards=cards) == Reading(cores=len(os.sched_getaffinity(0)))
        card.add_process(rank.pid, "python", sm_percent=99, memory_mib=9000)
        assert not certain_use(read()) and not likely_use(read())
        card.add_process(game, "/games/game.x86_64", graphics=True, sm_percent=60, memory_mib=3000)
        reading = read()
        assert [each.pid for each in reading.gpu] == [game]
        assert certain_use(reading) == f"game.x86_64 (process {game}) draws on the GPU"
        assert reading.load is None
        card.remove_process(game)
        assert not certain_use(read())
    finally:
        os.kill(game, 9)


def test_a_process_that_is_not_of_this_system_does_not_count(read, card):
    """A driver tells a container the ids of its host, where the run's own ranks have others."""
    gone = 2**22 - 1  # above every id that a process has by default
    card.add_process(gone, "python", sm_percent=99, memory_mib=9000)
    assert read(cards=Cards.open()).gpu == ()


def test_a_card_whose_driver_appears_later_is_found(tmp_path, supplies, card):
    """After a start of the machine, the supervisor may be there before the driver."""
    seconds, game = 0.0, os.getppid()  # a process of this system that is not below this one
    card.add_process(game, "game", graphics=True, memory_mib=3000)
    drivers = iter((lambda: None, Cards.open))
    late = Sensors(
        IDLE, tmp_path, supplies=supplies, clock=lambda: seconds, find=lambda: next(drivers)()
    )
    assert late.read().gpu == ()
    seconds = 30.0
    assert [each.pid for each in late.read().gpu] == [game]
    assert late.read().load is None
    late.close()


def test_a_driver_that_is_gone_says_nothing(read, card):
    cards = Cards.open()
    card.vanish()
    assert read(cards=cards).gpu == ()


MAINS, BATTERY = {"type": "Mains"}, {"type": "Battery", "scope": "System"}


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({}, False),
        ({"AC": MAINS | {"online": "1"}}, False),
        ({"AC": MAINS | {"online": "0"}}, True),
        ({"AC": MAINS | {"online": "0"}, "BAT0": BATTERY | {"status": "Discharging"}}, True),
        ({"AC": MAINS | {"online": "1"}, "BAT0": BATTERY | {"status": "Charging"}}, False),
        # A charger that is too weak is still one.
        ({"AC": MAINS | {"online": "1"}, "BAT0": BATTERY | {"status": "Discharging"}}, False),
        ({"AC": MAINS | {"online": "0"}, "usb": {"type": "USB", "online": "1"}}, False),
        ({"BAT0": BATTERY | {"status": "Discharging"}}, True),
        ({"BAT0": {"type": "Battery", "status": "Discharging"}}, True),
        ({"BAT0": BATTERY | {"status": "Full"}}, False),
        ({"usb": {"type": "USB", "online": "0"}}, False),
        # A wireless mouse's.
        ({"hid": {"type": "Battery", "scope": "Device", "status": "Discharging"}}, False),
        ({"AC": {}, "BAT0": {}}, False),
    ],
)
def test_a_machine_runs_on_battery_without_mains(supplies, read, there, expected):
    for name, values in there.items():
        supply(supplies, name, **values)
    assert on_battery(supplies) == expected
    assert read().on_battery == expected


def test_a_machine_without_a_folder_of_supplies_has_mains(tmp_path):
    assert not on_battery(tmp_path / "none")


def test_without_idle_only_the_command_and_the_person_are_asked(read, supplies, tmp_path):
    supply(supplies, "AC", type="Mains", online="0")
    assert read(Terms()) == Reading()
    assert read(Terms(command="echo no; exit 1")) == Reading(command="no")
    word = LendChoice(choice.OFF, datetime.now(UTC).replace(microsecond=0))
    choice.write(tmp_path, word)
    assert read(Terms()) == Reading(word)


def test_under_windows_a_node_that_lends_when_idle_stays_away_until_told(read, monkeypatch):
    monkeypatch.setattr("platform.release", lambda: "6.6.87.2-microsoft-standard-WSL2")
    seen = read()
    assert_names(Lender(IDLE).decide(0, datetime.now(UTC), seen), "WSL", "Windows")
    told = replace(seen, choice=LendChoice(choice.ON))
    assert Lender(IDLE).decide(0, datetime.now(UTC), told) == ""
    assert read(Terms()) == Reading()


def test_a_reading_does_not_wait_for_a_command_that_hangs(read, tmp_path):
    terms = Terms(command="test -e hang && sleep 600; touch hang; exit 0")
    assert read(terms).command == ""
    until((tmp_path / "hang").exists)
    began = time.monotonic()
    for _ in range(10):
        read(terms)
    assert time.monotonic() - began < 5
