"""Survivors go on in place: real supervisors, ranks and trainer, and what the run learns.

Each day plays one of the cases and a stall on one run (support/rotated.py); `python -m
tests.bench.lost` plays many more.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator

import pytest
from support.assembly import TINY_WORK, Assembly, Pace
from support.cables import Cables, need_cables
from support.facts import assert_names
from support.losses import Case, Fault, play
from support.rotated import ALL, SEED, of_today
from support.waiting import until

NAMES = ("node0", "node1", "node2")
PACE = Pace(row=0.05, disk=0.2)
SILENCE = 6.0
A_DAY = 1

CASES = (
    Case((Fault("rank", "node1"),)),
    Case((Fault("rank", "node0"),)),
    Case((Fault("torchrun", "node2"),)),
    Case((Fault("supervisor", "node0"),)),
    Case((Fault("power", "node0"),)),
    Case((Fault("bare", "node2"),)),
    Case((Fault("silent", "node1"),)),
    Case((Fault("silent", "node0"),)),
    Case((Fault("hang", "node0"),)),
    Case((Fault("leave", "node0"),)),
    Case((Fault("rank", "node0"), Fault("power", "node2"))),
    Case((Fault("rank", "node0"), Fault("rank", "node1"))),
    Case((Fault("rank", "node1"),), "checkpoint"),
    Case((Fault("power", "node0"),), "checkpoint"),
    Case((Fault("rank", "node0"),), "join", "node2"),
    Case((Fault("power", "node1"),), "join", "node1"),
    Case((Fault("rank", "node2"),), "leave", "node0"),
)


@pytest.fixture
def house(tmp_path, tiny_model, tiny_data) -> Iterator[Callable[..., Assembly]]:
    """Return a function that makes three nodes with the real training code, model and data."""
    made: list[Assembly] = []

    def make(work: dict[str, object] | None = None, **settings: object) -> Assembly:
        own = {"model": str(tiny_model), "dataset": str(tiny_data), **(work or {})}
        made.append(
            Assembly(
                tmp_path / "house",
                TINY_WORK | own,
                len(NAMES),
                PACE,
                silence_timeout=SILENCE,
                **settings,
            )
        )
        made[-1].start()
        made[-1].until_together()
        return made[-1]

    yield make
    for each in made:
        each.close()


def is_what_one_process_learns(run: Assembly, tmp_path) -> None:
    """Stop the run; require every step once on record, and what one process learns, in float64."""
    run.end()
    differences = run.differences(tmp_path)
    assert max(differences["furthest"], differences["apart"], differences["loss"]) < 1e-9


def causes(run: Assembly, node: str) -> list[dict]:
    """Return why the launches on a node have ended."""
    return [each["cause"] for each in run.record(node)["launches"] if each["cause"]]


def test_who_is_lost_and_comes_back_leaves_no_trace_in_what_was_learned(house, tmp_path):
    run, chance = house(), random.Random(SEED)
    for case in CASES if ALL else of_today(CASES, A_DAY):
        print(f"case: {case}")
        play(run, case, chance, SILENCE)
    # A stall is no loss, whatever came before.
    play(run, Case((Fault("stall", chance.choice(NAMES)),)), chance, SILENCE)
    is_what_one_process_learns(run, tmp_path)


@pytest.mark.rotated
def test_who_left_came_or_hangs_is_on_record_and_only_a_lone_survivor_of_three_waits(
    house, tmp_path
):
    run = house()
    ranks = {node: run.rank(node).pid for node in NAMES}
    run.lose("node0")
    step = run.until_together(run.newest(), ["node1", "node2"])
    run.start("node0")
    run.until_together(step.number)
    teams = [line for line in run.lines("node2") if line["kind"] == "team"]
    assert [line["nodes"] for line in teams[-2:]] == [["node1", "node2"], [*NAMES]]
    assert [*teams[-2]["left"]] == ["node0"]
    assert teams[-1]["joined"] == ["node0"]
    for node in ("node1", "node2"):
        assert run.rank(node).pid == ranks[node]
        assert "node0" in [cause["node"] for cause in causes(run, node)]

    play(run, Case((Fault("hang", "node1"),)), random.Random(SEED), SILENCE)
    said = next(each["message"] for each in causes(run, "node0") if each["node"] == "node1")
    assert_names(said, "rank 1", "in step", "it hangs")
    teams = [line for line in run.lines("node0") if line["kind"] == "team"]
    without = next(line for line in teams[::-1] if "node1" in line["left"])
    assert without["waited"] > 10  # while nobody knew that it hangs

    run.lose("node1", "node2")
    until(lambda: run.record("node0")["state"] == "waiting")
    until(lambda: sorted(run.record("node0")["missing"]) == ["node1", "node2"])
    reached = run.newest()
    time.sleep(SILENCE)
    assert run.newest() == reached
    run.start("node1", "node2")
    run.until_together(reached)
    is_what_one_process_learns(run, tmp_path)


@pytest.mark.rotated
def test_of_a_network_that_is_cut_into_parts_at_most_one_trains(tmp_path, tiny_model, tiny_data):
    need_cables()
    cables = Cables(NAMES)
    work = TINY_WORK | {"model": str(tiny_model), "dataset": str(tiny_data)}
    run = Assembly(tmp_path / "house", work, 3, PACE, cables, silence_timeout=SILENCE)
    try:
        run.start()
        before = run.until_together().number
        for cut, trains in (
            (lambda: cables.cut("node0"), ("node1", "node2")),  # two of three
            (lambda: cables.cut("node2"), ("node1",)),  # half of these two, with the lower rank
        ):
            cut()
            before = run.until_together(before, trains).number
            idle = {node: run.steps(node)[-1].number for node in NAMES if node not in trains}
            before = run.until_together(before + 60, trains).number  # beyond the silence
            for node, reached in idle.items():
                assert run.steps(node)[-1].number == reached, f"{node} trains, too"
        cables.join("node0")
        run.until_together(before, ("node0", "node1"))
        cables.join("node2")
        run.until_together(before)
        is_what_one_process_learns(run, tmp_path)
    finally:
        run.close()
        cables.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own needs root")
def test_a_node_with_a_full_disk_trains_on_without_checkpoints_and_writes_again(house, tmp_path):
    run = house(disks=True, work={"checkpoint_every": 5})
    full, other = "node0", "node2"  # the leader

    def kept(node: str) -> int:
        return max((int(each.name[5:]) for each in run.checkpoints(node)), default=0)

    def failing() -> list[dict]:
        return [each["failing"] for each in run.lines(other) if each["kind"] == "disk"]

    until(lambda: kept(full) > 0)
    generation = run.record(full)["generation"]
    run.fill(full)
    before = kept(full)
    until(lambda: kept(other) > before + 10)
    assert [[*each] for each in failing()] == [[full]]
    assert_names(failing()[0][full], "No space left on device")
    assert kept(full) <= before + 5
    run.free(full)
    until(lambda: kept(full) > before + 10)
    until(lambda: failing()[-1] == {})
    assert {run.record(node)["generation"] for node in NAMES} == {generation}
    is_what_one_process_learns(run, tmp_path)
