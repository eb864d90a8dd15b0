"""The unit of a run, as text, and what a record says after a machine went down."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from support.facts import assert_names

from hearth.supervise.cause import Cause, LaunchOutcome
from hearth.supervise.restart import as_lost, close_record, last_record
from hearth.supervise.spec import Meeting, Spec
from hearth.supervise.unit import unit_file, unit_name, unit_text

TOKEN = "secret-of-this-run-only"


@pytest.fixture
def spec(tmp_path) -> Spec:
    return Spec(
        run="evening",
        node="laptop",
        rank=1,
        nodes=("tower", "laptop"),
        address="127.0.0.2",
        meeting=Meeting("127.0.0.1", 4711),
        nproc=1,
        python="/env/bin/python",
        workspace=tmp_path,
        token=TOKEN,
        environment={"WANDB_API_KEY": "key-of-a-person"},
    )


def settings(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_the_unit_starts_and_buries_the_supervisor_and_holds_no_secret(spec):
    text = unit_text(spec, Path("/w/config/evening.json"), "/env/bin/python", Path("/w/scripts"))
    said = settings(text)
    python, *words = shlex.split(said["ExecStart"])
    assert python == "/env/bin/python"
    assert words == [
        *("-m", "hearth.supervise", "run", "--spec", "/w/config/evening.json"),
        *("--unit", "hearth-evening.service"),
    ]
    assert shlex.split(said["ExecStopPost"])[3] == "leave"
    assert said["WantedBy"] == "default.target"
    assert TOKEN not in text
    assert "key-of-a-person" not in text


def test_a_stop_asks_the_supervisor_alone_and_leaves_time_for_a_checkpoint(spec):
    said = settings(unit_text(spec, Path("/s.json"), "/p", Path("/c")))
    assert said["KillMode"] == "mixed"
    assert int(said["TimeoutStopSec"]) > spec.stop_grace + spec.silence_timeout


def test_words_that_mean_something_to_systemd_are_only_words(spec):
    odd = '/a b/100%/$HOME/"x"\\y'
    said = settings(unit_text(spec, Path(odd), "/p", Path("/c")))
    assert (
        said["ExecStart"].split("--spec ")[1].startswith('"/a b/100%%/$$HOME/\\"x\\"\\\\y" --unit')
    )


def test_the_unit_is_one_of_the_user():
    assert unit_name("evening") == "hearth-evening.service"
    assert unit_file("evening").match(".config/systemd/user/hearth-evening.service")


def test_a_record_that_the_power_cut_tore_counts_as_none(spec):
    spec.results.mkdir(parents=True)
    assert last_record(spec) is None
    spec.record.write_text('{"run": "eve')
    assert last_record(spec) is None
    spec.record.write_text(json.dumps({"generation": spec.generation - 1}))
    assert last_record(spec) is None
    spec.record.write_text(json.dumps({"generation": spec.generation + 1}))
    assert last_record(spec) == {"generation": spec.generation + 1}


def test_a_supervisor_that_was_killed_is_closed_as_failed(spec):
    spec.results.mkdir(parents=True)
    open_record = {
        "run": "evening", "node": "laptop", "rank": 1, "generation": 0, "pid": 7,
        "state": "running", "since": "2026-11-20T10:00:00Z", "heartbeat": "2026-11-20T10:05:00Z",
        "missing": [], "command": ["x"], "exit_code": None, "cause": None, "unit": "u",
    }  # fmt: skip
    close_record(spec, open_record, "it was killed")
    closed = last_record(spec)
    assert closed is not None
    assert (closed["state"], closed["command"], closed["unit"]) == ("failed", ["x"], "u")
    assert closed["cause"] == {
        "node": "laptop", "rank": None, "kind": "node_lost", "message": "it was killed",
    }  # fmt: skip


def test_whom_a_returning_node_misses_has_missed_it_first():
    missing = LaunchOutcome("failed", Cause("tower", None, "not_ready", "tower did not answer"))
    cause = as_lost(missing, "laptop", "2026-11-20T10:05:00Z").cause
    assert (cause.node, cause.kind) == ("laptop", "node_lost")
    assert_names(cause.message, "laptop", "2026-11-20T10:05:00Z", missing.cause.message)


def test_what_happens_after_the_return_is_told_as_it_is():
    for verdict in (
        LaunchOutcome("finished"),
        LaunchOutcome("failed", Cause("tower", 0, "rank_failed", "ValueError: x")),
        LaunchOutcome("stopped", Cause("tower", None, "stopped", "as asked")),
    ):
        assert as_lost(verdict, "laptop", "2026-11-20T10:05:00Z") == verdict
