"""The energy of a node: counters, power over time, and what a rank reports of both."""

from __future__ import annotations

import bisect
import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.nvml import FOLDER, StandInCards

from hearth.ranks import energy
from hearth.ranks.energy import LONGEST_GAP, Counter, Meter, Power, celsius, zones
from hearth.ranks.world import World

OWN = os.getpid() << 4
"""Number of the first card, which no test in another process has."""

Curve = Sequence[tuple[float, float]]
"""Watts by time in seconds, straight between two points."""


def watts_at(curve: Curve, at: float) -> float:
    """Return the power at a time."""
    number = min(max(1, bisect.bisect_left(curve, (at,))), len(curve) - 1)
    (first, before), (last, after) = curve[number - 1], curve[number]
    return before + (after - before) * (at - first) / (last - first)


def joules_of(curve: Curve) -> float:
    """Return the energy of a whole curve, exactly."""
    return sum(
        (last - first) * (before + after) / 2
        for (first, before), (last, after) in itertools.pairwise(curve)
    )


@st.composite
def curves(draw: Callable) -> Curve:
    """Draw a power curve of some minutes: plateaus of all heights, with steps and ramps between."""
    at, level = 0.0, draw(st.floats(5, 450))
    points = [(at, level)]
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.floats(10.0, 60.0))
        points.append((at, level * draw(st.floats(0.9, 1.1))))
        at += draw(st.sampled_from([0.01, 0.3, 5.0]))  # a step, kernels that begin, a slow rise
        level = draw(st.floats(5, 450))
        points.append((at, level))
    return [*points, (at + 10.0, level)]


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def metered(curve: Curve, gaps: Sequence[float]) -> float:
    """Return the joules that `Power` finds in a curve, read after each of the `gaps` in turn."""
    clock = Clock()
    power = Power(lambda: watts_at(curve, clock.now), clock)
    end, turn = curve[-1][0], 0
    while clock.now < end:
        clock.now = min(end, clock.now + gaps[turn % len(gaps)])
        turn += 1
        power.read()
    return power.joules


# A reading is due every 0.1 s, and late where the computer is busy.
GAPS = st.lists(st.floats(0.1, 0.15), min_size=1, max_size=50)


@settings(deadline=None)
@given(curves(), GAPS)
def test_power_over_time_is_within_two_percent_of_the_curve(curve, gaps):
    assert metered(curve, gaps) == pytest.approx(joules_of(curve), rel=0.02)


@settings(deadline=None)
@given(
    st.floats(0.3, 3.0),
    st.floats(0.05, 0.5),
    st.floats(20, 100),
    st.floats(150, 450),
    st.integers(),
)
def test_so_it_is_where_power_falls_at_the_end_of_each_step(step, dip, idle, busy, seed):
    curve: list[tuple[float, float]] = [(0.0, busy)]
    while (at := curve[-1][0]) < 200:
        points = ((step, busy), (step + 0.01, idle), (step + dip, idle), (step + dip + 0.01, busy))
        curve += [(at + moved, watts) for moved, watts in points]
    until = list(itertools.accumulate(joules_of(pair) for pair in itertools.pairwise(curve)))
    so_far = [(at, joules) for (at, _), joules in zip(curve, [0.0, *until], strict=True)]
    # NVML tells the mean of the last second (cards since Ampere).
    last_second = [
        (at, (watts_at(so_far, at) - watts_at(so_far, max(0.0, at - 1.0))) / min(1.0, at))
        for at in (0.1 * tenth for tenth in range(1, int(curve[-1][0] * 10)))
    ]
    late = random.Random(seed)
    gaps = [late.uniform(0.1, 0.15) for _ in range(1999)]
    found = metered([(0.0, busy), *last_second], gaps)
    assert found == pytest.approx(joules_of(curve), rel=0.02)


@settings(deadline=None)
@given(st.lists(st.floats(-40, 40), min_size=100, max_size=100), st.floats(100, 400))
def test_noise_around_a_level_evens_out(noise, level):
    average = sum(noise) / len(noise)
    curve = [(0.1 * n, level + each - average) for n, each in enumerate(noise)]
    assert metered(curve, [0.1]) == pytest.approx(joules_of(curve), rel=0.02)


def test_power_is_not_taken_for_known_over_a_long_silence():
    clock, answers = Clock(), iter([100.0, 100.0, None, None, 300.0, 300.0])
    power = Power(lambda: next(answers), clock)
    for moved in (1.0, 1.0, LONGEST_GAP, 1.0, 1.0):
        clock.now += moved
        power.read()
    assert power.joules == 100.0 + 300.0


@given(
    st.lists(st.floats(0, 900), min_size=1, max_size=40),
    st.floats(1000, 300_000),
    st.floats(0, 1),
)
def test_a_counter_that_begins_again_at_its_span_loses_nothing(rises, span, share):
    shown, clock = [share * span], Clock()
    counter = Counter(lambda: shown[0], span, clock)
    for rise in rises:
        shown[0] = (shown[0] + rise) % span
        clock.now += 1.0
        counter.read()
    assert counter.joules == pytest.approx(sum(rises), abs=1e-6 * span)


@given(st.floats(30_000, 200_000), st.floats(0, 500), st.floats(0, 500))
def test_a_counter_with_a_span_that_begins_anew_after_a_suspend_has_not_passed_it(last, new, more):
    shown, clock = [last], Clock()
    counter = Counter(lambda: shown[0], 262_143.0, clock)
    for after in (new, new + more):
        shown[0] = after
        clock.now += 5.0
        counter.read()
    assert counter.joules == pytest.approx(more, abs=1e-3)


@given(st.lists(st.tuples(st.floats(0, 900), st.booleans()), max_size=40))
def test_a_counter_that_a_driver_resets_never_runs_back_and_counts_nothing_twice(history):
    shown, before = [5e6], 0.0
    counter = Counter(lambda: shown[0])
    for rise, reset in history:
        shown[0] = rise if reset else shown[0] + rise
        counter.read()
        assert counter.joules >= before
        before = counter.joules
    surely = sum(rise for rise, reset in history if not reset)
    assert surely - 1e-3 <= counter.joules <= sum(rise for rise, _ in history) + 1e-3


def test_a_counter_that_does_not_answer_for_a_while_has_counted_on():
    answers = iter([1000.0, None, None, 1600.0])
    counter = Counter(lambda: next(answers))
    for _ in range(3):
        counter.read()
    assert counter.joules == 600.0


class Rising:
    """A source that a test lets rise."""

    period = 0.01

    def __init__(self) -> None:
        self.joules = 0.0

    def read(self) -> None:
        pass


def test_energy_of_an_interrupted_step_is_reported_with_the_next():
    source = Rising()
    meter = Meter([source])
    source.joules = 100.0
    assert meter.pending() == 100.0
    source.joules = 130.0
    assert meter.pending() == 130.0  # the step was lost, and none of it was settled
    source.joules = 150.0
    meter.settle()
    assert meter.pending() == 20.0
    meter.close()


def test_a_sensor_that_fails_ends_nothing():
    source = Rising()
    meter = Meter([source])
    source.joules = 7.0
    source.read = lambda: 1 / 0
    assert meter.pending() == 7.0
    meter.close()


def test_a_rank_without_anything_to_measure_says_so():
    meter = Meter()
    assert not meter.metered
    assert meter.pending() == 0.0


@pytest.fixture
def cards(tmp_path, monkeypatch):
    """Return imaginary cards of this process."""
    cards = StandInCards(tmp_path / "nvml.json", ("one", "other"), first=OWN)
    monkeypatch.setenv("HEARTH_NVML_STANDIN", str(cards.file))
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    # torch leaves out NVML's prefix.
    monkeypatch.setattr(
        energy, "own_cards", lambda world: [each.removeprefix("GPU-") for each in cards.uuids]
    )
    yield cards
    sys.modules.pop("pynvml", None)


def test_the_counters_of_all_cards_of_a_node_are_added_up(cards):
    meter = Meter.open(World())
    for card, joules in ((0, 500.0), (1, 250.0)):
        cards.set_watts(0.0, card=card)
        cards.advance_energy(joules, card=card)
    assert meter.metered
    assert meter.pending() == pytest.approx(750, abs=40)  # each drew 20 W until then
    meter.close()


def test_the_power_of_a_card_without_a_counter_is_summed_up(tmp_path, cards):
    old = StandInCards(cards.file, ("one", "other"), energy=False, first=OWN)
    for card in (0, 1):
        old.set_watts(100.0, card=card)
    started = time.monotonic()
    meter = Meter.open(World())
    time.sleep(1.0)
    joules, seconds = meter.pending(), time.monotonic() - started
    assert joules == pytest.approx(200 * seconds, rel=0.15)
    meter.close()


def test_cards_that_tell_nothing_are_not_measured(cards):
    silent = StandInCards(cards.file, ("one", "other"), energy=False, first=OWN)
    silent.set_watts(None, card=1)
    assert not Meter.open(World()).metered


def test_one_rank_of_a_node_measures(cards):
    assert not Meter.open(World(local_rank=1)).metered


def test_of_two_nodes_on_one_computer_one_counts_what_they_share(cards):
    desk, laptop = Meter.open(World()), Meter.open(World())
    cards.advance_energy(1000.0)
    assert desk.metered and laptop.metered
    assert laptop.pending() == 0.0
    assert desk.pending() > 999.0
    desk.close()
    again = Meter.open(World())
    cards.advance_energy(1000.0)
    assert again.pending() > 999.0
    again.close()
    laptop.close()


def zone(folder, name: str, microjoules: int, span: int = 262_143_328_850) -> None:
    """Write a counter as the kernel shows it."""
    folder.mkdir()
    for file, content in (
        ("name", name),
        ("energy_uj", microjoules),
        ("max_energy_range_uj", span),
    ):
        (folder / file).write_text(f"{content}\n")


def test_processors_and_their_memory_are_counted_once(tmp_path, monkeypatch):
    for number, name in ((0, "package-0"), (1, "package-1"), (2, "psys")):
        zone(tmp_path / f"intel-rapl:{number}", name, 1_000_000)
    zone(tmp_path / "intel-rapl:0:0", "core", 1_000_000)
    zone(tmp_path / "intel-rapl:0:1", "dram", 1_000_000)
    zone(tmp_path / "intel-rapl-mmio:0", "package-0", 1_000_000)
    names = [each.name for each in zones(tmp_path)]
    assert names == ["intel-rapl:0", "intel-rapl:0:1", "intel-rapl:1"]
    monkeypatch.setattr(energy, "zones", lambda: zones(tmp_path))
    meter = Meter.open(World())
    for name in names:
        (tmp_path / name / "energy_uj").write_text("3500000\n")
    (tmp_path / "intel-rapl:2" / "energy_uj").write_text("9000000\n")
    assert meter.pending() == pytest.approx(7.5)
    meter.close()


def test_a_processor_whose_counters_only_root_may_read_is_not_measured(tmp_path, monkeypatch):
    zone(tmp_path / "intel-rapl:0", "package-0", 1)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()  # root may read everything
    monkeypatch.setattr(energy, "zones", lambda: zones(tmp_path))
    assert not Meter.open(World()).metered


def test_a_run_on_a_gpu_does_not_count_the_processor(tmp_path, monkeypatch):
    zone(tmp_path / "intel-rapl:0", "package-0", 1)
    monkeypatch.setattr(energy, "zones", lambda: zones(tmp_path))
    monkeypatch.setattr(energy, "own_cards", lambda world: [])
    assert not Meter.open(World(device=torch.device("cuda:0"))).metered


CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


def test_the_warmest_place_of_the_processor_counts(monkeypatch):
    found = {
        "nvme": [SimpleNamespace(current=90.0)],
        "coretemp": [SimpleNamespace(current=each) for each in (51.0, 63.0, 58.0)],
    }
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: found)
    assert celsius(CPU) == 63.0


def test_of_a_gpu_torch_is_asked(monkeypatch):
    monkeypatch.setattr(torch.cuda, "temperature", {GPU: 71}.__getitem__)  # a stand-in of a GPU
    assert celsius(GPU) == 71.0


def test_what_cannot_be_told_ends_no_run(monkeypatch):
    def broken(*_):
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed")

    monkeypatch.setattr(torch.cuda, "temperature", broken)
    monkeypatch.setattr(psutil, "sensors_temperatures", dict)
    assert celsius(GPU) == celsius(CPU) == 0.0
