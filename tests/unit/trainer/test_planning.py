"""The planner of a run whose group is a part of its layout, and changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from support.facts import refuses
from support.several import on_ranks

from hearth.base.errors import ConfigError
from hearth.config import Settings
from hearth.config.layout import Layout
from hearth.node.probe import Measured
from hearth.plan.speed import UNKNOWN, Speed
from hearth.trainer.planning import choose_planner, regroup_planner

SPEEDS = [Speed((1, 2, 4), (0.5, 0.9, 1.6)), Speed((1,), (1.0,)), Speed((1, 2), (2.0, 3.0))]
LAYOUT = ("tower", "laptop", "laptop")


def measured(speed: Speed) -> dict[str, Any]:
    """Return a rank's measurement as it travels."""
    return json.loads(
        json.dumps(
            {
                "speed": {"sizes": speed.sizes, "seconds": speed.seconds},
                "row_tokens": 64,
                "exchange_bytes": 0,
                "saturated": True,
            }
        )
    )


class Group:
    """A rank's view of the group: the other members' values are given beforehand."""

    def __init__(self, rank: int, members: Sequence[int], source: Any = None) -> None:
        self.rank, self.members, self.layout, self.size = rank, tuple(members), LAYOUT, 3
        self.leads = rank == self.members[0]
        self._source = source

    def gather(self, value: Any) -> list[Any]:
        if "speed" not in value:
            return [json.loads(json.dumps(value))]
        return [measured(SPEEDS[rank]) for rank in self.members]

    def from_rank(self, rank: int, value: Any) -> Any:
        return json.loads(json.dumps(self._source(value) if self._source else value))

    def from_leader(self, value: Any) -> Any:
        return self.from_rank(self.members[0], value)


def own(rank: int) -> Measured:
    return Measured(SPEEDS[rank], row_tokens=64, exchange_bytes=0, saturated=True)


def settings(**more: Any) -> Settings:
    return Settings(model="tiny", global_batch=12, **more)


def chosen(rank: int, members: Sequence[int], joins: bool = False, **more: Any) -> Any:
    group = Group(rank, members)
    return choose_planner(settings(**more), own(rank), None, group, joins)


@pytest.mark.parametrize("split", ["auto", "equal", "3:1:2"])
def test_a_run_may_begin_with_a_part_of_its_layout(split):
    planner = chosen(0, (0, 2), split=split)
    (plan,) = planner.plans(0, [12])
    assert (sum(plan.rows), plan.rows[1]) == (12, 0)
    assert plan.micro_batch == (4, 1, 2)
    assert planner.plans(0, [12]) == chosen(2, (0, 2), split=split).plans(0, [12])


def test_a_split_is_of_the_whole_layout():
    with refuses(ConfigError, "split", "3 ranks"):
        chosen(0, (0, 2), split="1:1")


def test_a_given_micro_batch_is_that_of_all_ranks():
    (plan,) = chosen(0, (0, 2), split="equal", micro_batch=2).plans(0, [12])
    assert plan.micro_batch == (2, 2, 2)


@pytest.mark.parametrize("split", ["auto", "equal"])
def test_a_rank_that_joins_adopts_what_its_group_knows(split):

    def rank(world):
        if world.rank == 1:
            planner = chosen(1, (1,), joins=True, split=split)
        else:
            planner = chosen(world.rank, (0, 2), split=split)
            for step in range(4):
                (plan,) = planner.plans(step, [12])
                planner.observe((plan,), plan.rows, [9.0, 0.0, 1.0])
            planner.fits_no_more_than(0, 1)
        regroup_planner(planner, settings(), own(world.rank), world, 0)
        return planner

    group, joined, _ = on_ranks(3, rank)
    assert joined.plans(4, [12]) == group.plans(4, [12])
    assert joined.share(30) == group.share(30)
    assert joined.share(12).micro_batch == (1, 1, 2)
    assert joined.share(12).rows[1] > 0


@pytest.mark.parametrize("split", ["auto", "equal"])
def test_ranks_plan_alike_if_one_has_taken_a_step_more(split):
    def rank(world):
        planner = chosen(world.rank, (0, 1, 2), split=split)
        if world.rank == 2:  # no record has that step, in which a rank ran out of memory
            planner.fits_no_more_than(0, 1)
        regroup_planner(planner, settings(), own(world.rank), world, 0)
        return planner.plans(4, [12])

    assert len(set(on_ranks(3, rank))) == 1


def test_a_rank_that_joins_a_replay_gets_its_plans(tmp_path):
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path)})
    folder = layout.run_dir("night")
    folder.mkdir(parents=True)
    line = {"kind": "plan", "step": 1, "rows": [6, 4, 2], "micro_batch": [4, 1, 2]}
    lines = [line, {"kind": "step", "step": 3}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    repeats = settings(replay="night", split="equal")
    group = choose_planner(repeats, own(0), layout, Group(0, (0, 2)))
    assert group.plans(0, [12])[0].rows == (9, 0, 3)
    elsewhere = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path / "elsewhere")})
    joined = choose_planner(repeats, own(1), elsewhere, Group(1, (1,)), joins=True)
    told = []
    everyone = Group(0, (0, 1, 2), lambda value: told.append(value) or value)
    regroup_planner(group, repeats, own(0), everyone, 0)
    told = iter(told)
    regroup_planner(joined, repeats, own(1), Group(1, (0, 1, 2), lambda _: next(told)), 0)
    assert joined.plans(0, [12]) == group.plans(0, [12])
    assert joined.plans(0, [12])[0].rows == (6, 4, 2)
    assert joined.share(24).rows == (12, 8, 4)


def test_unmeasured_ranks_count_as_equal():
    alone = Measured(UNKNOWN, row_tokens=0, exchange_bytes=0, saturated=True)
    group = Group(0, (0,))
    group.gather = lambda value: [value]
    planner = choose_planner(settings(micro_batch=3, split="equal"), alone, None, group)
    assert planner.plans(0, [12])[0].rows == (12, 0, 0)
