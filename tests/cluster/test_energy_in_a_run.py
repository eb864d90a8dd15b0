"""The energy of a run of two nodes, from its ranks to its report; a stand-in has their cards."""

from __future__ import annotations

import os
import re
import shutil
from datetime import datetime

import pytest
from support.facts import assert_names
from support.nvml import FOLDER, StandInCards

pytestmark = pytest.mark.cluster


@pytest.fixture
def metered(local):
    """Return a local cluster whose nodes compute on a card each, of 200 and of 100 W."""
    for number, (node, watts) in enumerate((("desk", 200.0), ("laptop", 100.0))):
        first = (os.getpid() << 4) + number  # no test in another process has this card
        StandInCards(local.folder / f"{node}.json", first=first).set_watts(watts)
    # A node's programs find what came with the training code, and no other folder.
    for module in FOLDER.glob("*.py"):
        shutil.copy(module, local.checkout / "training")
    local.environment["STAND_IN_NVML"] = str(local.folder / "{node}.json")
    return local


@pytest.mark.rotated
@pytest.mark.slow
def test_a_run_tells_what_it_used_and_what_that_cost(metered):
    screen = metered.train("-e", "max_steps=40", "-e", "run=night", "-e", "electricity_price=0.3")
    assert_names(screen, "kWh", "Wh per million tokens", "at 0.3 a kWh")
    lines = metered.metrics("night")
    start, end = lines[0], lines[-1]
    assert (start["kind"], end["kind"]) == ("start", "end")
    steps = [line for line in lines if line["kind"] == "step"]
    assert all(None not in line["energy_joules_by_rank"] for line in steps)
    # Each node reads its counter before the line is written, how long before is up to the disk:
    # for the first step after the start, for the end after the last step.
    begin, first, last, over = (
        datetime.fromisoformat(line["time"]) for line in (start, steps[0], steps[-1], end)
    )
    used = end["energy_joules"] - steps[0]["energy_joules"]
    least, most = (300 * span.total_seconds() for span in (last - first, over - begin))
    assert least - 1 <= used <= most + 1
    by_node = zip(*(line["energy_joules_by_rank"] for line in steps[1:]), strict=True)
    desk, laptop = map(sum, by_node)
    assert desk / laptop == pytest.approx(2, rel=0.2)
    report = (metered.runs / "night" / "report.html").read_text()
    told = re.search(r"<dt>energy</dt><dd>([\d.]+) kWh", report)
    assert float(told[1]) == pytest.approx(end["energy_joules"] / 3.6e6, rel=0.01)
    assert "at 0.3 a kWh" in report
    assert "Not measured" not in report
    shown = metered.hearth("status", "--prometheus").stdout
    joules = re.search(r'hearth_run_energy_joules_total\{run="night"\} (\S+)', shown)
    assert float(joules[1]) == end["energy_joules"]
    assert "hearth_run_energy_cost_total" not in shown  # the inventory has no price
    screen = metered.play("train.yml", *metered.tiny(), "-e", "electricity_price=-1", status=2)
    assert_names(screen, "electricity_price (-e): -1 is no price")
