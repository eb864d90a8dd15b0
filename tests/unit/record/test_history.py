"""The record of a run, and its copies on the other nodes."""

from __future__ import annotations

import json
import os

import pytest
from support.several import on_ranks

from hearth.ranks.world import World
from hearth.record.events import read_events
from hearth.record.history import (
    Copies,
    forget_after,
    joules_so_far,
    restore,
)
from hearth.record.lines import METRICS
from hearth.record.own_disk import OwnDisk


def lines(*steps: int, **more: object) -> str:
    return "".join(json.dumps({"kind": "step", "step": step, **more}) + "\n" for step in steps)


@pytest.fixture
def metrics(tmp_path):
    return tmp_path / METRICS


def test_what_a_run_writes_again_is_forgotten(metrics):
    metrics.write_text(lines(1, 2, 3) + '{"kind": "end", "step": 3}\n{"kind": "st')
    forget_after(metrics, 2)
    assert metrics.read_text() == lines(1, 2)
    forget_after(metrics, 0)
    assert metrics.read_text() == ""


def test_an_evaluation_that_is_still_owed_is_recorded_once(metrics):
    judged = [
        json.dumps({"kind": "evaluate", "step": step, "when": "during"}) + "\n" for step in (1, 2)
    ]
    metrics.write_text(lines(1) + judged[0] + lines(2) + judged[1])
    forget_after(metrics, 2, evaluation_due=True)
    assert metrics.read_text() == lines(1) + judged[0] + lines(2)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, lines(1, 2)),
        (lines(1), lines(1, 2)),
        (lines(1) + '{"kind": "plan", "step": 2}\n', lines(1, 2)),
        (lines(1, 2, 3, by="the own"), lines(1, 2, 3, by="the own")),
    ],
)
def test_the_copy_of_a_checkpoint_counts_where_the_own_record_ends_before_it(
    metrics, tmp_path, own, expected
):
    kept = tmp_path / "kept"
    kept.write_text(lines(1, 2))
    if own is not None:
        metrics.write_text(own)
    restore(metrics, kept, 2)
    assert metrics.read_text() == expected


def test_without_any_record_there_is_nothing_to_restore(metrics, tmp_path):
    restore(metrics, tmp_path / "kept", 2)
    assert not metrics.exists()


def test_every_node_gets_what_is_new(tmp_path):
    folders = [tmp_path / f"node{rank}" for rank in range(3)]
    for folder in folders:
        folder.mkdir()
    (folders[2] / METRICS).write_text(lines(1, 2, 3, 4, 5, left="by an earlier launch"))

    def rank(world):
        metrics = folders[world.rank] / METRICS
        copies = Copies(metrics, world)
        for steps in ((1, 2), (3,), ()):
            if world.leads:
                with metrics.open("a") as file:
                    file.write(lines(*steps))
            copies.update(OwnDisk())

    on_ranks(3, rank)
    assert {(folder / METRICS).read_text() for folder in folders} == {lines(1, 2, 3)}


def test_the_energy_of_a_run_is_what_any_node_has_on_record_of_it(tmp_path):
    def so_far(world):
        spent = ((120.5, 80.0), (300.0,), ())[world.rank]
        records = [tmp_path / f"{world.rank}-{place}" for place in ("own", "of the checkpoint")]
        for record, joules in zip(records, spent, strict=False):
            record.write_text(lines(1) + lines(2, energy_joules=joules) + '{"kind": "st')
        return joules_so_far(records, world)

    assert on_ranks(3, so_far) == [300.0] * 3


def test_a_run_without_any_measured_energy_has_none(tmp_path, metrics):
    metrics.write_text(lines(1, energy_joules=None))
    assert joules_so_far([metrics], World()) is None


FALSE = ["[]", "5", "null", '{"kind": ["step"]}', '{"kind": "step", "step": [1]}', "{}"]
FALSE += ['{"kind": "end", "energy_joules": "x"}', '{"kind": "evaluate", "loss": {}}']


@pytest.mark.parametrize("false", FALSE)
def test_lines_that_no_trainer_has_written_are_skipped(metrics, tmp_path, false):
    metrics.write_text(lines(1) + false + "\n" + lines(2))
    assert [event.step for event in read_events(tmp_path)] == [1, 2]
    restore(metrics, tmp_path / "kept", 2)
    forget_after(metrics, 2, evaluation_due=True)
    assert metrics.read_text() == lines(1, 2)
    assert joules_so_far([metrics], World()) is None


def test_bytes_that_are_no_text_hide_no_other_line(metrics, tmp_path):
    metrics.write_bytes(
        lines(1).encode() + b'{"kind": "example", "source": "\xff", "stretches": []}\n'
    )
    assert [event.kind for event in read_events(tmp_path)] == ["step", "example"]


def test_a_pipe_in_its_place_is_no_record(metrics, tmp_path):
    os.mkfifo(metrics)
    assert [*read_events(tmp_path)] == []
