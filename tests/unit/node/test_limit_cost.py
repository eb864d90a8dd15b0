"""Measurements under a limit on a GPU's power, and the speed that the limit costs."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.nvml import seen_cards

from hearth.config import Settings
from hearth.node import limit_cost, speed
from hearth.node.probe import Measured
from hearth.plan.speed import Speed

NOVEMBER_20, NOVEMBER_26 = 1763640000, 1764150000
CUDA = torch.device("cuda", 0)


def case(**changes):
    """Return the case of the rank on a stand-in of a card; torch's answers are made up, too."""
    given = {"model": "tiny", "data": "words"}
    settings = Settings(model="tiny", dataset="words", **changes)
    return speed._case(settings, given, CUDA, "transformers", {})


def measured(seconds: float) -> Measured:
    return Measured(Speed((1, 2), (0.4, seconds)), 512, 1000, saturated=True)


@pytest.fixture
def card(tmp_path, monkeypatch):
    """Return a card that NVML and torch agree on, neither of them real."""
    with seen_cards(tmp_path, monkeypatch) as cards:
        properties = SimpleNamespace(name="Stand-in", uuid="00000000-stand-in")
        monkeypatch.setattr(speed.precision, "supported", lambda device: ["bf16"])
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        yield cards


def test_a_limit_belongs_to_the_case_unless_it_is_the_default_one(card):
    usual = case()
    assert "watts" not in usual
    card.set_limits(now=220.0)
    assert case() == usual | {"watts": 220.0}
    card.set_limits(now=350.0)
    assert case() == usual | {"watts": 350.0}
    card.set_limits()  # a driver that knows of none, as a laptop's
    assert case() == usual


def test_what_was_measured_before_limits_were_looked_at_is_read_at_the_default_limit(
    card, tmp_path
):
    before = {name: value for name, value in case().items() if name != "watts"}
    speed.keep_speed(tmp_path / "speeds", before, measured(0.5))
    assert speed.read_speed(tmp_path / "speeds", case(), 2) == measured(0.5)
    card.set_limits(now=220.0)
    assert speed.read_speed(tmp_path / "speeds", case(), 2) is None  # it is measured again


def test_two_limits_of_one_case_tell_what_the_lower_one_costs(card, tmp_path):
    speeds = tmp_path / "speeds"
    speed.keep_speed(speeds, case(), measured(0.5))
    assert limit_cost.costs(speeds) == []
    card.set_limits(now=220.0)
    speed.keep_speed(speeds, case(seed=7), measured(0.625))
    speed.keep_speed(speeds, case(sequence_length=64), measured(0.9))  # has no other beside it
    for path in speeds.glob("*.json"):
        os.utime(path, (NOVEMBER_20, NOVEMBER_20))
    (cost,) = limit_cost.costs(speeds)
    assert cost.case == case()
    assert (cost.slower, cost.measured) == (pytest.approx(0.2), "2025-11-20")
    assert cost.is_of("GPU-00000000-stand-in", 220.0)
    assert not cost.is_of("GPU-00000000-stand-in", 250.0)
    assert not cost.is_of("GPU-00000001-stand-in", 220.0)


def test_the_newest_cost_is_the_last_and_counts_from_its_later_measurement(tmp_path):
    for name, seconds, day in (
        ("a", 0.8, NOVEMBER_20),
        ("b", 0.5, NOVEMBER_26),
    ):
        for watts, took in (({}, 0.4), ({"watts": 200.0}, seconds)):
            path = tmp_path / f"{name}{len(watts)}.json"
            given = {"processor": "Card 5a", "model": name, **watts}
            path.write_text(json.dumps({"sizes": [1], "seconds": [took], "case": given}))
            os.utime(path, (day if watts else NOVEMBER_20,) * 2)
    found = limit_cost.costs(tmp_path)
    assert [each.measured for each in found] == ["2025-11-20", "2025-11-26"]
    assert [each.slower for each in found] == [pytest.approx(0.5), pytest.approx(0.2)]


def test_a_folder_that_is_not_there_and_files_that_are_torn_tell_nothing(tmp_path):
    assert limit_cost.costs(tmp_path / "none") == []
    for number, text in enumerate(
        ("", "[]", "{}", '{"sizes": [1], "seconds": [0], "case": {}}', '{"case": 5}', "\0")
    ):
        (tmp_path / f"{number}.json").write_text(text)
    assert limit_cost.costs(tmp_path) == []


@pytest.mark.parametrize(
    ("limit", "slower", "text"),
    [
        (300.0, None, "300 W"),
        (220.0, None, "220 of 300 W"),
        (220.0, 0.08, "220 of 300 W, 8% slower than at 300 W (measured 2026-11-20)"),
        (290.0, 0.001, "290 of 300 W, as fast as at 300 W (measured 2026-11-20)"),
        (350.0, -0.05, "350 of 300 W, 5% faster than at 300 W (measured 2026-11-20)"),
    ],
)
def test_a_limit_is_told_beside_the_default_one(limit, slower, text):
    assert limit_cost.describe_limit(limit, 300.0, slower, "2026-11-20") == text


@given(st.floats(50, 600), st.floats(50, 600), st.none() | st.floats(-5, 1))
def test_a_limit_can_always_be_told(limit, default, slower):
    assert f"{limit:.0f}" in limit_cost.describe_limit(limit, default, slower, "2026-11-20")
