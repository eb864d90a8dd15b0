"""The unit of a run, as text, and what a record says after a machine went down."""

from __future__ import annotations

import json
import os
import pwd
import resource
import shlex
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from support.facts import assert_names

from hearth.base import systemd
from hearth.base.systemd import has_manager, units_of
from hearth.supervisor.__main__ import main
from hearth.supervisor.cause import Cause, LaunchOutcome
from hearth.supervisor.life import _as_lost as as_lost
from hearth.supervisor.record import RunRecord, close_record, last_record
from hearth.supervisor.spec import Spec
from hearth.supervisor.unit import (
    LEFT,
    MOST_RESTARTS,
    comes_back,
    interruption,
    unit_name,
    unit_text,
)


@pytest.fixture
def spec(tmp_path) -> Spec:
    return Spec(
        run="evening",
        node="laptop",
        rank=1,
        nodes=("tower", "laptop"),
        addresses=("127.0.0.1", "127.0.0.2"),
        ports=(4711, 4711),
        nproc=1,
        nprocs=(1, 1),
        python="/env/bin/python",
        workspace=tmp_path,
        token="secret-of-this-run-only",
        environment={"WANDB_API_KEY": "key-of-a-person"},
    )


def test_a_supervisor_has_the_variables_of_its_node_as_a_unit_too(spec, tmp_path, monkeypatch):
    file = tmp_path / "evening.json"
    file.write_text(json.dumps(asdict(spec) | {"environment": {"FOO": "bar"}}, default=str))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    seen = []

    def supervise(*_):
        seen.append(os.environ["FOO"])
        return RunRecord("evening", "laptop", 1, 0, 7, state="finished")

    monkeypatch.setattr("hearth.supervisor.__main__.supervise", supervise)
    assert main(["run", "--spec", str(file), "--unit", "hearth-evening.service"]) == 0
    assert seen == ["bar"]


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_the_unit_of_the_user_starts_and_buries_the_supervisor_and_holds_no_secret(spec):
    text = unit_text(spec, Path("/w/config/evening.json"), "/env/bin/python", Path("/w/scripts"))
    said = settings(text)
    of = ["--spec", "/w/config/evening.json", "--unit", "hearth-evening.service"]
    hearth = ["/env/bin/python", "-m", "hearth.supervisor"]
    assert shlex.split(said["ExecStart"]) == [*hearth, "run", *of]
    assert shlex.split(said["ExecStopPost"]) == [*hearth, "leave", *of]
    assert said["WantedBy"] == "default.target"
    assert spec.token not in text
    assert "key-of-a-person" not in text
    assert unit_name(spec) == "hearth-evening.service"


def test_nodes_that_share_a_home_have_units_of_their_own_which_start_on_one_machine(spec, tmp_path):
    units = {}
    for node in spec.nodes:
        own = replace(spec, node=node, workspace=tmp_path / node)
        text = unit_text(own, own.workspace / "config/evening.json", "/p", Path("/c"))
        units[unit_name(own)] = settings(text)["ConditionHost"]
    assert len(units) == 2
    assert {*units.values()} == {Path("/etc/machine-id").read_text().strip()}


def test_the_units_of_a_workspace_are_not_those_of_another_one(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(systemd, "units_folder", lambda: tmp_path)
    for run, workspace in [("a.b", "w"), ("a.b", "other/w"), ("a.b", "w/tower"), ("c", "w")]:
        own = replace(spec, run=run, node="tower", workspace=tmp_path / workspace)
        text = unit_text(own, own.workspace / f"config/{run}.json", "/p", Path("/c"))
        (tmp_path / f"hearth-{run}-{workspace.replace('/', '-')}.service").write_text(text)
    assert units_of(tmp_path / "w") == {
        run: tmp_path / f"hearth-{run}-w.service" for run in ("a.b", "c")
    }


LIMITED = """
import json, resource
from hearth.base.systemd import take_limit_of_units
take_limit_of_units()
print(json.dumps(resource.getrlimit(resource.RLIMIT_MEMLOCK)))
"""


@pytest.mark.parametrize(("said", "limit"), [("4096", 4096), ("infinity", None), ("", None)])
def test_a_check_locks_no_more_memory_than_the_unit_of_a_run_may(program, said, limit):
    """Its own session may have more, as sshd's does where /etc/security/limits.conf says so."""
    program("systemctl", f"echo {said}")
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    after = json.loads(subprocess.check_output([sys.executable, "-c", LIMITED]))
    assert after == (list(before) if limit is None else [limit, limit])


@pytest.mark.parametrize(
    ("lingers", "answer", "has"),
    [(True, "exit 0", True), (True, "exit 1", False), (False, "exit 0", False)],
)
def test_a_unit_needs_a_user_manager_that_answers_and_outlasts_the_login(
    tmp_path, monkeypatch, program, lingers, answer, has
):
    program("systemctl", answer)
    monkeypatch.setattr(systemd, "LINGER", tmp_path)
    if lingers:
        (tmp_path / pwd.getpwuid(os.getuid()).pw_name).touch()
    assert has_manager() == has


def test_a_stop_asks_the_supervisor_alone_and_leaves_time_for_a_checkpoint(spec):
    said = settings(unit_text(spec, Path("/s.json"), "/p", Path("/c")))
    assert said["KillMode"] == "mixed"
    assert said["LimitMEMLOCK"] == "infinity"
    assert int(said["TimeoutStopSec"]) > spec.stop_grace + spec.silence_timeout


@pytest.mark.parametrize(
    ("unit", "machine", "manager", "state", "fact"),
    [
        ("u.service", "running", "running", "deactivating", ""),
        (None, "running", "", "", ""),
        (None, "stopping", "", "", "machine"),
        ("u.service", "stopping", "running", "deactivating", "machine"),
        ("u.service", "running", "stopping", "deactivating", "systemd"),
        ("u.service", "running", "running", "active", "process"),
        ("u.service", "", "", "", "process"),  # systemd has just been killed
    ],
)
def test_a_signal_asks_for_a_stop_only_where_somebody_stops_the_unit(
    program, unit, machine, manager, state, fact
):
    cases = {"is-system-running": machine, "--user is-system-running": manager}
    cases["--user is-active u.service"] = state
    lines = [f'"{words}") echo {answer};;' for words, answer in cases.items()]
    program("systemctl", f'case "$*" in {" ".join(lines)} esac')
    why = interruption(unit)
    assert bool(why) == bool(fact)
    assert_names(why, fact) if fact else None


@pytest.mark.parametrize(
    ("manager", "status", "result", "restarts", "back"),
    [
        ("stopping", "0", "success", 0, True),
        ("running", str(LEFT), "success", 0, True),
        ("running", str(LEFT), "success", MOST_RESTARTS, False),
        ("running", "KILL", "signal", 0, True),
        ("running", "0", "success", 0, False),
    ],
)
def test_a_unit_that_ends_is_started_again_where_the_run_goes_on(
    program, monkeypatch, manager, status, result, restarts, back
):
    program(
        "systemctl",
        f'case "$*" in *is-system*) echo {manager};; *NRestarts*) echo {restarts};; esac',
    )
    monkeypatch.setenv("EXIT_STATUS", status)
    monkeypatch.setenv("SERVICE_RESULT", result)
    assert comes_back("u.service") == back


@pytest.mark.parametrize(("state", "kept"), [("running", True), ("finished", False)])
def test_a_unit_that_ends_keeps_the_secrets_of_an_open_run_only(
    spec, program, monkeypatch, tmp_path, state, kept
):
    program("systemctl", "echo stopping")  # the machine goes down
    monkeypatch.setenv("HOME", str(tmp_path))
    file, secrets = (tmp_path / f"evening.{kind}" for kind in ("json", "secrets"))
    file.write_text(json.dumps(asdict(spec), default=str))
    secrets.write_text('{"KEY": "planted"}')
    spec.results.mkdir(parents=True)
    spec.record.write_text(json.dumps({"generation": 0, "state": state}))
    assert main(["leave", "--spec", str(file), "--unit", "hearth-evening.service"]) == 0
    assert secrets.exists() == kept


def test_words_that_mean_something_to_systemd_are_only_words(spec):
    said = settings(unit_text(spec, Path('/a b/100%/$HOME/"x"\\y'), "/p", Path("/c")))
    words = said["ExecStart"].split("--spec ")[1]
    assert words.startswith('"/a b/100%%/$$HOME/\\"x\\"\\\\y" --unit')


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
    left = RunRecord("evening", "laptop", 1, 0, pid=7, state="running", command=["x"], unit="u")
    close_record(spec, asdict(left), "it was killed")
    closed = last_record(spec)
    assert closed is not None
    assert (closed["state"], closed["command"], closed["unit"]) == ("failed", ["x"], "u")
    assert Cause(**closed["cause"]) == Cause("laptop", None, "node_lost", "it was killed")


def test_whom_a_returning_node_misses_has_missed_it_first():
    missing = LaunchOutcome("failed", Cause("tower", None, "not_ready", "tower did not answer"))
    cause = as_lost(missing, "laptop", "2026-11-20T10:05:00Z").cause
    assert (cause.node, cause.kind) == ("laptop", "node_lost")
    assert_names(cause.message, "laptop", "2026-11-20T10:05:00Z", missing.cause.message)


@pytest.mark.parametrize(
    "verdict",
    [
        LaunchOutcome("finished"),
        LaunchOutcome("failed", Cause("tower", 0, "rank_failed", "ValueError: x")),
    ],
)
def test_what_happens_after_the_return_is_told_as_it_is(verdict):
    assert as_lost(verdict, "laptop", "2026-11-20T10:05:00Z") == verdict
