"""The lender: it leaves at once, returns after quiet minutes only, and hears a person first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.base.nvml import GpuProcess
from hearth.lend.choice import AUTO, OFF, ON, LendChoice
from hearth.lend.lender import CpuLoad, Lender, Reading, certain_use, likely_use, short_name
from hearth.lend.terms import Terms

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 11, 26, 12, 0, tzinfo=BERLIN)

QUIET = Reading(cores=8)
GAME = Reading(gpu=(GpuProcess(70, 3000, 90, graphics=True, name="game"),))
SCROLLING = Reading(gpu=(GpuProcess(71, 300, 40, graphics=True, name="browser"),))
BUSY = Reading(load=CpuLoad(4.0, "make"), cores=8)
UNPLUGGED = Reading(on_battery=True)
NO = Reading(command="not now")


class Node:
    """A lender whose clock is moved by hand."""

    def __init__(self, begin: datetime = NOON, **terms: object) -> None:
        self.lender = Lender(Terms.of({"when": "idle", "after": 5, **terms}))
        self.begin, self.passed = begin, 0.0

    @property
    def local(self) -> datetime:
        passed = self.begin.astimezone(UTC) + timedelta(seconds=self.passed)
        return passed.astimezone(self.begin.tzinfo)

    def reads(self, reading: Reading, after: float = 1.0) -> str:
        self.passed += after
        return self.lender.decide(1000 + self.passed, self.local, reading)


readings = st.sampled_from([QUIET, GAME, SCROLLING, BUSY, UNPLUGGED, NO])
histories = st.lists(st.tuples(readings, st.floats(0.5, 400)), max_size=60)


@given(histories)
def test_use_that_comes_and_goes_takes_a_node_away_at_most_once_in_the_quiet_time(history):
    node, away, leaves = Node(), False, []
    for reading, seconds in history:
        reason = node.reads(reading, seconds)
        if reason and not away:
            leaves.append(node.passed)
        away = bool(reason)
    assert all(later - earlier >= 300 for earlier, later in pairwise(leaves))


@given(histories)
def test_a_node_lends_only_after_the_quiet_time_since_the_last_use(history):
    node, used = Node(), None
    for reading, seconds in history:
        reason = node.reads(reading, seconds)
        if reading in (GAME, UNPLUGGED, NO):
            used = node.passed
            assert reason, "it leaves at once"
        if used is not None and node.passed - used < 300:
            assert reason


@given(histories)
def test_a_node_that_is_quiet_for_the_quiet_time_lends(history):
    node = Node()
    for reading, seconds in history:
        node.reads(reading, seconds)
    node.reads(QUIET)
    assert node.reads(QUIET, 300) == ""


@given(histories)
def test_the_reason_of_a_node_stays_the_same_while_nothing_changes(history):
    node = Node()
    for reading, seconds in history:
        node.reads(reading, seconds)
    for reading in (GAME, BUSY, QUIET):
        said = {node.reads(reading), node.reads(reading)} - {node.reads(reading)}
        assert len(said) <= 1


@pytest.mark.parametrize("reading", [SCROLLING, BUSY])
def test_a_peak_of_one_reading_does_not_take_a_node_away(reading):
    node = Node()
    for _ in range(10):
        assert node.reads(reading) == ""
        assert node.reads(QUIET) == ""
    assert node.reads(reading) == ""
    assert node.reads(reading)


def test_a_busy_processor_is_described_by_its_first_reading():
    node = Node()
    node.reads(Reading(load=CpuLoad(4.0, "make"), cores=8))
    reasons = {node.reads(Reading(load=CpuLoad(load, "cc1"), cores=8)) for load in (3.0, 2.0, 5.0)}
    assert reasons == {"other programs take 4.0 of 8 cores, make most of all"}


def test_the_reason_says_when_the_node_returns():
    node = Node()
    assert node.reads(GAME) == "game (process 70) draws on the GPU"
    quiet = "game (process 70) draws on the GPU; quiet now, lends again at 12:05"
    assert node.reads(QUIET) == quiet
    assert node.reads(QUIET, 200) == quiet
    assert node.reads(QUIET, 100) == ""


def test_without_a_quiet_time_a_node_returns_at_once():
    node = Node(after=0)
    assert node.reads(NO) == "not now"
    assert node.reads(QUIET) == ""


def test_off_and_on_beat_everything_and_need_no_quiet_time():
    node = Node(hours="23:00-07:00")
    off = LendChoice(OFF, NOON - timedelta(hours=1), NOON + timedelta(hours=3))
    assert node.reads(Reading(off)) == "switched off by hand since 11:00 until 15:00"
    on = LendChoice(ON, NOON)
    for reading in (GAME, UNPLUGGED, NO):
        assert node.reads(Reading(on, gpu=reading.gpu, command=reading.command)) == ""
    assert (
        node.reads(Reading(LendChoice(AUTO))) == "its hours are 23:00-07:00; lends again at 23:00"
    )


def test_after_on_a_node_in_use_leaves_at_once():
    node = Node()
    assert node.reads(Reading(LendChoice(ON, NOON), gpu=GAME.gpu)) == ""
    assert node.reads(GAME) == "game (process 70) draws on the GPU"


def test_a_word_is_over_at_its_end():
    node = Node()
    off = LendChoice(OFF, NOON, NOON + timedelta(seconds=10))
    assert node.reads(Reading(off), 9)
    assert node.reads(Reading(off), 1) == ""


def test_a_broken_choice_is_the_reason():
    assert Node().reads(Reading(LendChoice(OFF, trouble="lend.json cannot be read"))) == (
        "lend.json cannot be read"
    )


def test_hours_open_at_once_for_a_node_that_has_been_quiet():
    node = Node(datetime(2026, 11, 26, 22, 50, tzinfo=BERLIN), hours="23:00-07:00")
    node.reads(GAME)
    assert "lends again at 23:00" in node.reads(QUIET, 360)
    assert node.reads(QUIET, 240) == ""
    assert "lends again at 23:00" in node.reads(QUIET, 8 * 3600)


def test_use_just_before_the_hours_begin_keeps_its_quiet_time():
    node = Node(datetime(2026, 11, 26, 22, 58, tzinfo=BERLIN), hours="23:00-07:00")
    node.reads(GAME, 60)
    assert node.reads(QUIET, 60) == (
        "game (process 70) draws on the GPU; quiet now, lends again at 23:04"
    )


def test_a_return_in_the_night_that_has_an_hour_twice_is_told_by_the_clock_on_the_wall():
    node = Node(datetime(2026, 10, 25, 2, 58, tzinfo=BERLIN))
    node.reads(GAME, 0)
    assert node.reads(QUIET).endswith("lends again at 02:03")
    assert node.reads(QUIET, 299) == ""


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
