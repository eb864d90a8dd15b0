"""The energy of real ranks, with a stand-in for the library that tells it: what a run records."""

from __future__ import annotations

import os
import time
from datetime import datetime
from itertools import pairwise

import pytest
from support.metric_lines import story_of
from support.nvml import FOLDER, StandInCards
from support.team import SUM, Fault, Team
from support.waiting import until

from hearth.ranks.control_protocol import LoadAlone, Waiting
from hearth_controller.runs.energy import energy_of

pytestmark = pytest.mark.rotated("the energy of ranks")
STEPS = 12
OWN = os.getpid() << 4
"""Number of the first card, which no test in another process has."""

LATE = 1.0
"""Tolerance in seconds between the readings of two lines."""

PRELUDE = f"""
import time
from hearth.ranks import energy
from hearth.trainer.compute import Compute

os.environ["HEARTH_NVML_STANDIN"] = {{folder!r}} + "/{{{{node}}}}.json"
sys.path.insert(0, {str(FOLDER)!r})
sys.modules.pop("pynvml", None)
import pynvml
energy.own_cards = lambda world: pynvml.stand_in_uuids()

gradients = Compute.gradients
def slow(*given, **named):
    time.sleep(0.5)
    return gradients(*given, **named)
Compute.gradients = slow
"""
"""Has each rank compute on the card in its node's file, and take a while for it."""


@pytest.fixture
def settings(tiny_model, tiny_data):
    """Return the settings of every run here."""
    return {
        **{"model": str(tiny_model), "dataset": str(tiny_data), "sequence_length": 96},
        **{"packing": True, "epochs": 1},
        **{"learning_rate": 0.01, "global_batch": 7, "max_steps": STEPS, "split": "equal"},
        **{"micro_batch": 1, "wandb": "off", "eval_held_out": False, "checkpoint_every": 4},
    }


def lines_of(team: Team, node: str, *kinds: str) -> list[dict]:
    return [each for each in team.records(node) if each["kind"] in kinds]


def reached(team: Team, node: str, step: int) -> bool:
    """Return whether a node has this step on record."""
    path = team.folder(node) / "metrics.jsonl"
    return path.exists() and f'"step": {step}, "steps"' in path.read_text()


def test_what_nodes_use_is_the_integral_of_their_power_while_they_take_part(tmp_path, settings):
    a = StandInCards(tmp_path / "a.json", first=OWN)
    # It tells its power only, and c tells nothing.
    b = StandInCards(tmp_path / "b.json", energy=False, first=OWN + 1)
    a.set_watts(40.0)  # little at both ends, where a line is late after its reading
    b.set_watts(80.0)
    curve = [(time.time(), 40.0)]
    fault = Fault("b", SUM, 9, before=True)
    with Team(tmp_path, settings, fault, prelude=PRELUDE.format(folder=str(tmp_path))) as team:
        team.begin()
        for step, watts in ((2, 300.0), (4, 100.0), (6, 40.0)):
            until(lambda step=step: reached(team, "a", step))
            a.set_watts(watts)
            curve.append((time.time(), watts))
        team.regroup("a", "c")
        team.end("a", "c")
        steps, (end,) = lines_of(team, "a", "step"), lines_of(team, "a", "end")
        on_c = [line["energy_joules_by_rank"] for line in lines_of(team, "c", "step")]

    def used_by_a(since: float, until: float) -> float:
        times = [*curve, (until, 0.0)]
        return sum(
            watts * max(0.0, min(last, until) - max(first, since))
            for (first, watts), (last, _) in pairwise(times)
        )

    at = [datetime.fromisoformat(line["time"]).timestamp() for line in (*steps, end)]
    found = [line["energy_joules_by_rank"] for line in (*steps, end)]
    assert on_c == found[:-1]
    expected = used_by_a(at[0], at[-1])
    assert sum(own[0] for own in found[1:]) == pytest.approx(
        expected, abs=0.02 * expected + 40 * LATE
    )
    # b had eight steps, and rests since.
    expected = 80.0 * (at[7] - at[0])
    assert sum(own[1] for own in found[1:8]) == pytest.approx(
        expected, abs=0.02 * expected + 80 * LATE
    )
    assert [own[1] for own in found[8:]] == [None] * (STEPS - 8 + 1)
    assert {own[2] for own in found} == {None}
    totals = [line["energy_joules"] for line in (*steps, end)]
    assert totals == sorted(totals)
    assert totals[-1] == pytest.approx(sum(each or 0 for own in found for each in own), abs=0.1)
    energy = energy_of(story_of(*lines_of(team, "a", "start"), *steps, end))
    assert energy.unmeasured == ["c"]
    assert energy.by_node.keys() == {"a", "b"}


def test_a_run_that_begins_again_counts_on_and_a_node_that_joins_counts_from_then(
    tmp_path, settings
):
    for number, node in enumerate("abc"):
        StandInCards(tmp_path / f"{node}.json", first=OWN + number).set_watts(100.0)
    lost = [Fault(node, SUM, 8) for node in "ab"]  # after seven steps, of which four are kept
    with Team(tmp_path, settings, *lost, prelude=PRELUDE.format(folder=str(tmp_path))) as team:
        team.begin("a", "b")
        team.ranks.wait(0, 1)
        before = lines_of(team, "a", "step")
        team.begin("a", "b")
        record = team.folder("a") / "metrics.jsonl"
        until(lambda: record.read_text().count('"kind": "start"') == 2 and reached(team, "a", 5))
        team.ranks.stop(1)  # a waits for b until c has loaded
        team.ranks.start("c")
        team.ranks.hear(Waiting, 2)
        (start, *_) = lines_of(team, "a", "start")
        choices = {name: start[name] for name in ("precision", "optimizer")}
        team.ranks.order(LoadAlone(choices), 2)
        team.ranks.hear(Waiting, 2, where=lambda told: told.loaded)
        team.ranks.pause(0, 1)
        team.ranks.wake(1)
        team.regroup("a", "b", "c")
        team.end()
        steps, (end,) = lines_of(team, "a", "step"), lines_of(team, "a", "end")
    assert [line["step"] for line in steps] == list(range(1, STEPS + 1))
    assert before[-1]["step"] == 7
    again = steps[4:]
    assert min(line["energy_joules"] for line in again) > before[-1]["energy_joules"]
    totals = [line["energy_joules"] for line in (*steps, end)]
    assert totals == sorted(totals)
    by_rank = [line["energy_joules_by_rank"] for line in steps]
    joined = next(number for number, own in enumerate(by_rank) if own[2] is not None)
    assert joined >= 5
    assert all(own[2] is None for own in by_rank[:joined])
    assert all(own[2] for own in by_rank[joined:])
    lost_steps = sum(sum(filter(None, line["energy_joules_by_rank"])) for line in before[4:])
    recorded = sum(each or 0 for line in (*steps, end) for each in line["energy_joules_by_rank"])
    assert totals[-1] == pytest.approx(recorded + lost_steps, abs=0.1)
