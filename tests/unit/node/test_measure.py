"""Measuring a rank: the share of its computer that it may use meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import pytest
from support.facts import assert_names

from hearth.base.errors import HearthError
from hearth.config import resolve_run, write_run
from hearth.config.layout import Layout
from hearth.node import speed
from hearth.node.__main__ import _prepare, of_each_rank, part_of_free
from hearth.node.outcome import outcome_file, read_outcome
from hearth.node.probe import Measured
from hearth.plan.speed import Speed


@pytest.mark.parametrize(
    ("environment", "part"),
    [
        ({}, 8.0),  # measured by hand
        ({"LOCAL_WORLD_SIZE": "1"}, 8.0),
        ({"LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "3"}, 2.0),
    ],
)
def test_ranks_that_are_measured_at_once_share_the_free_memory(environment, part):
    assert part_of_free(10.0, environment) == pytest.approx(part)


def test_a_preparation_is_reused_only_once_the_speeds_are_known(monkeypatch, tmp_path, tiny_model):
    monkeypatch.setenv("HEARTH_WORKSPACE", str(tmp_path))
    monkeypatch.setattr(speed, "case_of", lambda *_: {})
    layout = Layout.from_environment()
    night = resolve_run({"model": str(tiny_model), "dataset": "homelab-qa"}, layout.results)
    write_run(night, tmp_path / "run.yml")
    wanted = {"fetch": True, "nproc": 1, "gpus": [], "measure": False, "kept": True}

    def kept() -> dict:
        facts = _prepare(tmp_path / "run.yml", wanted)["facts"]
        found = read_outcome(outcome_file(night, layout, 1, []))
        assert found in ({}, json.loads(json.dumps(facts)))
        return found

    assert kept() == {}
    measured = Measured(Speed((1, 2), (1.0, 1.5)), row_tokens=9, exchange_bytes=8, saturated=True)
    speed.keep_speed(layout.speeds, {}, measured)
    assert [rank["row_tokens"] for rank in kept()["ranks"]] == [9]


@pytest.mark.parametrize(
    ("ends", "facts", "advised"),
    [
        ("raise RuntimeError('Failed to find C compiler.')", ["C compiler", "apt-get"], False),
        ("raise RuntimeError('of a new kind')", ["of a new kind", "not known"], False),
        ("print('hearth: error: model: gone; fetch it', file=sys.stderr); sys.exit(1)",
         ["model: gone"], False),
        ("sys.exit(7)", ["status 7"], False),
        ("os.kill(os.getpid(), 9)", ["SIGKILL", "memory"], True),
    ],
    ids=["compiler", "unknown", "own", "silent", "killed"],
)  # fmt: skip
def test_a_measurement_that_fails_names_its_cause(monkeypatch, tmp_path, ends, facts, advised):
    run = subprocess.run
    monkeypatch.setattr(
        speed.subprocess,
        "run",
        lambda _, **more: run([sys.executable, "-c", f"import os, sys\n{ends}"], **more),
    )
    monkeypatch.setattr(speed, "case_of", lambda *_: {})
    layout = Layout(*(tmp_path / name for name in ("runs", "runs", "data", "models")), False)
    night = resolve_run({"model": "smollm2-135m", "dataset": "homelab-qa"}, layout.results)
    with pytest.raises(HearthError) as refused:
        speed.measured_here(night, layout, None, print)
    (finding,) = refused.value.findings
    assert_names(finding, *facts)
    assert ("split=equal" in finding) == advised
    assert "\n" not in finding


def test_a_node_that_is_not_to_be_measured_has_the_speeds_of_all_its_ranks_or_none(
    monkeypatch, tmp_path
):
    """The owner uses it: a measurement would disturb, and be wrong."""
    monkeypatch.setattr(speed, "case_of", lambda *args: {"rank": args[2]["LOCAL_RANK"]})
    monkeypatch.setattr(speed.subprocess, "run", None)
    layout = Layout(*(tmp_path / name for name in ("runs", "runs", "data", "models")), False)
    night = resolve_run({"model": "smollm2-135m", "dataset": "homelab-qa"}, layout.results)
    measured = Measured(Speed((1, 2), (1.0, 1.5)), row_tokens=9, exchange_bytes=8, saturated=True)

    def known() -> list[tuple[int, ...]]:
        found = of_each_rank(2, partial(speed.kept_here, night, layout, None))
        return [rank["speed"]["sizes"] for rank in found]

    assert known() == []
    speed.keep_speed(layout.speeds, {"rank": "0"}, measured)
    assert known() == []
    speed.keep_speed(layout.speeds, {"rank": "1"}, measured)
    assert known() == [(1, 2), (1, 2)]
