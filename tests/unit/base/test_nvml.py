"""NVIDIA cards as NVML tells of them, with a stand-in for its library."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import pytest
from support.nvml import FOLDER, StandInCards, seen_cards

from hearth.base.nvml import Cards, GpuProcess, PowerLimits, visible

TWO = ("Stand-in RTX 5070 Ti", "Stand-in RTX 3070 Ti")


@pytest.fixture
def standin(tmp_path, monkeypatch):
    """Return two cards that do not exist, which this process sees."""
    with seen_cards(tmp_path, monkeypatch, TWO) as cards:
        yield cards


@pytest.fixture
def cards(standin):
    """Return the cards as Hearth sees them."""
    found = Cards.open()
    assert found
    yield found
    found.close()


def test_cards_have_names_and_identities(cards):
    assert (cards.count, cards.names) == (2, TWO)
    assert len(set(cards.uuids)) == 2
    assert all(uuid.startswith("GPU-") for uuid in cards.uuids)


def test_a_process_on_two_cards_is_one_process(standin, cards):
    standin.add_process(4321, "/usr/bin/python3 train.py", sm_percent=30, memory_mib=700)
    standin.add_process(4321, "/usr/bin/python3 train.py", sm_percent=90, memory_mib=800, card=1)
    standin.add_process(77, "/usr/lib/xorg/Xorg vt2", graphics=True, memory_mib=60)
    assert cards.processes() == (
        GpuProcess(77, 60, 0.0, graphics=True, name="Xorg"),
        GpuProcess(4321, 1500, 90.0, graphics=False, name="python3"),
    )


def test_the_room_on_a_card_is_what_its_driver_and_others_leave(standin, cards):
    """The stand-in has 8188 MiB, the driver keeps 250 of them and 40 for the screen."""
    assert cards.room_mib(0, ours=()) == 8188 - 250 - 40
    standin.add_process(5, "game", graphics=True, memory_mib=900)
    standin.add_process(6, "python", memory_mib=5000)
    assert cards.room_mib(0, ours={6}) == 8188 - 250 - 40 - 900
    assert cards.room_mib(1, ours={6}) == 8188 - 250 - 40
    assert cards.programs(0, ours={6}) == [("game", 900)]


def test_a_process_that_draws_and_computes_is_one_that_draws(standin, cards):
    standin.add_process(5, "game", graphics=True, compute=True, memory_mib=900)
    assert cards.processes() == (GpuProcess(5, 900, 0.0, graphics=True, name="game"),)


def test_a_process_whose_memory_and_share_are_unknown_is_still_there(standin, cards):
    standin.add_process(5, "game", graphics=True, sm_percent=None, memory_mib=None)
    assert cards.processes() == (GpuProcess(5, None, None, graphics=True, name="game"),)


def test_the_newest_sample_of_a_share_counts_and_arbitrary_numbers_do_not(
    standin, cards, monkeypatch
):
    def samples(card, since):
        of = [(2, 30), (1, 80), (3, 4_000_000_000)] if card == 0 else []
        return [SimpleNamespace(pid=5, timeStamp=time, smUtil=share) for time, share in of]

    standin.add_process(5, "game", graphics=True)
    monkeypatch.setattr("pynvml.nvmlDeviceGetProcessUtilization", samples)
    assert [each.sm_percent for each in cards.processes()] == [30.0]


def test_energy_and_power_are_in_joules_and_watts(standin, cards):
    standin.set_watts(0.0)
    before = cards.energy_joules(0)
    standin.advance_energy(1500.0)
    assert cards.energy_joules(0) - before == pytest.approx(1500)
    standin.set_watts(220.5)
    assert cards.watts(0) == 220.5
    assert cards.watts(1) == 20.0


def test_power_limits_are_in_watts(standin, cards):
    standin.set_limits(now=220)
    assert cards.power_limits(0) == PowerLimits(now=220, default=300, least=100, most=350)


def test_what_a_card_does_not_tell_is_none(tmp_path, standin, cards):
    standin.set_watts(None)
    standin.set_limits()
    assert cards.watts(0) is cards.power_limits(0) is None
    old = StandInCards(standin.file, TWO, energy=False)
    assert cards.energy_joules(1) is None
    assert old.file == standin.file


def test_a_driver_that_goes_away_answers_nothing(standin, cards):
    standin.vanish()
    assert cards.processes() == ()
    assert cards.energy_joules(0) is cards.watts(0) is None
    assert Cards.open() is None


def test_cards_that_a_process_may_not_see_do_not_count(standin, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    found = Cards.open()
    assert found
    assert found.names == (TWO[1],)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert Cards.open() is None


def test_the_stand_in_has_names_of_the_real_library(monkeypatch):
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    real = dir(importlib.import_module("pynvml"))
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "pynvml")
    standin = dir(importlib.import_module("pynvml"))
    ours = {name for name in standin if name.lower().startswith("nvml")}
    assert len(ours) > 15
    assert ours <= set(real)


@pytest.mark.parametrize(
    "setting, seen",
    [
        (None, [0, 1, 2]),
        ("", []),
        ("1", [1]),
        ("2, 0", [2, 0]),
        ("0,7,1", [0]),
        ("-1", []),
        ("GPU-bb", [1]),
        ("GPU-", []),
        ("1,1", [1]),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(setting, seen):
    assert visible(setting, ["GPU-aa", "GPU-bb", "GPU-cc"]) == seen
