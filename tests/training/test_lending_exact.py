"""The learning of a run while owners take machines and give them back: the real trainer.

Each day plays some of the leaves on one run (support/rotated.py); HEARTH_ALL=1 plays all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import psutil
import pytest
from support.assembly import TINY_WORK, Assembly, Pace
from support.gamers import GAME, Gamers
from support.losses import soon
from support.rotated import ALL, of_today
from support.waiting import until

NAMES = ("node0", "node1", "node2")
PACE = Pace(row=0.05, disk=0.3, evaluation=0.5)
A_DAY = 3

FREE_WITHIN = 15.0
"""Seconds from the end of a step within which the rank's process is gone: on idle cores 3."""

FLOAT64, FLOAT32 = 1e-9, 1e-3
"""Bounds on the distance from what one process learns."""

LONGEST_WAIT = 30.0
"""Seconds that the others may wait for a transfer: 5 on idle cores, more after a refused vote."""


@dataclass(frozen=True)
class Leave:
    """The house wants these machines at once, in the middle of some work of the run."""

    nodes: tuple[str, ...]
    during: str = "step"

    @property
    def others(self) -> tuple[str, ...]:
        return tuple(name for name in NAMES if name not in self.nodes)


LEAVES = (
    *(Leave((name,)) for name in (*NAMES, *NAMES)),
    Leave(("node0", "node1")),
    Leave(("node1", "node2")),
    Leave(NAMES),
    Leave(("node1",), "checkpoint"),
    Leave(("node0",), "checkpoint"),
    Leave(("node0",), "evaluation"),
    Leave(("node2",), "evaluation"),
)


PLAYED = (
    *(Leave((name,)) for name in NAMES),
    Leave(("node0", "node1")),
    Leave(("node1", "node2")),
    Leave(NAMES),
    Leave(("node1",), "checkpoint"),
    Leave(("node0",), "checkpoint"),
    Leave(("node0",), "evaluation"),
    Leave(("node2",), "evaluation"),
)
"""Ten leaves of a run on nodes with a game."""


@pytest.fixture
def house(tmp_path, tiny_model, tiny_data) -> Iterator[Callable[..., Assembly]]:
    """Return a function that makes three nodes with the real training code, model and data."""
    made: list[Assembly] = []
    tiny = TINY_WORK | {"model": str(tiny_model), "dataset": str(tiny_data)}

    def make(kind: type[Assembly] = Assembly, **work: object) -> Assembly:
        terms = {} if kind is Gamers else {"lend": {"when": ""}}
        made.append(kind(tmp_path / "house", tiny | work, len(NAMES), PACE, **terms))
        return made[-1]

    yield make
    for each in made:
        each.close()


def take_away(run: Assembly, leave: Leave) -> None:
    """Let the owner want the machines; print how soon after their step the ranks are gone."""
    _await(run, leave.during)
    ranks = {node: run.rank(node) for node in leave.nodes}
    for node in leave.nodes:
        run.want(node)
    gone: dict[str, datetime] = {}
    soon(lambda: _note_ends(ranks, gone))
    for node, at in gone.items():
        ended = datetime.fromisoformat(run.steps(node)[-1].time)
        seconds = (at - ended).total_seconds()
        print(f"{leave}: the rank of {node} was gone {seconds:.2f} s after its step")
        # One that nobody follows writes a checkpoint first, and a broken step has no end.
        assert seconds < FREE_WITHIN or not leave.others or leave.during != "step"
    until(lambda: all(run.record(node)["away"] for node in leave.nodes))


def _await(run: Assembly, moment: str) -> None:
    match moment:
        case "checkpoint":
            folders = [run.workspace(node) / "checkpoints/first" for node in NAMES]
            soon(lambda: any([*folder.glob(".writing-*")] for folder in folders))
        case "evaluation":
            soon(lambda: any((run.results(node) / "evaluates").exists() for node in NAMES))


def _note_ends(ranks: dict[str, psutil.Process], gone: dict[str, datetime]) -> bool:
    for node, rank in ranks.items():
        if node not in gone and not _lives(rank):
            gone[node] = datetime.now(UTC)
    return len(gone) == len(ranks)


def _lives(rank: psutil.Process) -> bool:
    try:
        return rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def play(run: Assembly, leave: Leave) -> None:
    """Take the machines away, and give them back once the others have gone on."""
    before = run.newest()
    kept = {node: run.rank(node).pid for node in leave.others}
    take_away(run, leave)
    if leave.others:
        before = run.until_together(before, leave.others).number
    else:
        until(lambda: all(run.record(node)["missing"] for node in NAMES))
        before = run.newest()
    for node in leave.nodes:
        run.let_go(node)
    run.until_together(before)
    assert {node: run.rank(node).pid for node in leave.others} == kept
    waited = [
        line["waited"]
        for node in leave.others[:1]
        for line in run.lines(node)
        if line["kind"] == "team"
    ]
    print(f"{leave}: so far the others waited for {waited} s")
    assert max(waited, default=0.0) < LONGEST_WAIT


def is_what_one_process_learns(run: Assembly, tmp_path, within: float = FLOAT64) -> None:
    """Stop the run; require every step once on record, and what one process learns."""
    run.end()
    differences = run.differences(tmp_path)
    print(differences)
    assert max(differences["furthest"], differences["apart"], differences["loss"]) < within


@pytest.mark.rotated
def test_who_leaves_for_the_owner_and_returns_leaves_no_trace_in_what_was_learned(house, tmp_path):
    run = house(eval_every=7)
    run.start()
    until(lambda: run.is_loaded("node1"))
    run.want("node1")  # before its first step, so that it comes to a run under way
    before = run.until_together(0, ("node0", "node2")).number
    run.let_go("node1")
    run.until_together(before)
    for leave in LEAVES if ALL else of_today(LEAVES, A_DAY):
        play(run, leave)
    is_what_one_process_learns(run, tmp_path)


@pytest.mark.rotated
def test_a_run_on_machines_on_which_somebody_plays_leaves_the_game_alone(house, tmp_path):
    run = house(Gamers, eval_every=7, precision="fp32")
    run.start()
    run.until_together()
    for leave in PLAYED if ALL else of_today(PLAYED, A_DAY):
        play(run, leave)
    causes = [launch["cause"] for node in NAMES for launch in run.record(node)["launches"]]
    away = [cause["message"] for cause in causes if cause["kind"] == "away"]
    assert away and all(GAME in message for message in away)
    is_what_one_process_learns(run, tmp_path, FLOAT32)


@pytest.mark.rotated
def test_the_last_machine_to_be_taken_away_hands_its_work_to_the_first_that_is_back(
    house, tmp_path
):
    run = house(checkpoint_every=1_000_000)
    run.start()
    run.until_together()
    for taken, left in (("node0", ("node1", "node2")), ("node1", ("node2",))):
        run.want(taken)
        before = run.until_together(run.newest(), left).number
    time.sleep(2)
    run.want("node2")
    until(lambda: run.record("node2")["away"])
    reached = run.newest()
    assert reached > before
    run.let_go("node0")
    assert run.until_together(reached, ("node0",)).number == reached + 1
    run.let_go("node1")
    run.let_go("node2")
    run.until_together(reached)
    is_what_one_process_learns(run, tmp_path)
