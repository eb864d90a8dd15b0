"""A run under Slurm that has no supervisor: queued, ended by Slurm, or gone."""

from __future__ import annotations

import pytest
from support.digests import digest
from support.facts import assert_names

from hearth_controller.runs.digests import observed_runs
from hearth_controller.runs.job_state import settled
from hearth_controller.runs.observed import GONE
from hearth_controller.runs.status import status
from hearth_controller.runs.status_table import status_lines


@pytest.mark.parametrize(
    ("state", "slurm", "reason", "settles", "facts"),
    [
        ("queued", "PENDING", "Resources", "queued", ("12", "Resources", "work")),
        ("queued", "PENDING", "JobHeldUser", "queued", ("scontrol release 12",)),
        ("queued", "PENDING", "NewReason", "queued", ("12", "NewReason")),
        (
            "queued",
            "PENDING",
            "ReqNodeNotAvail, UnavailableNodes:oldbox",
            "queued",
            ("oldbox", "sinfo -R"),
        ),
        ("running", "PENDING", "BeginTime", "queued", ("12", "requeue")),
        ("queued", "RUNNING", "None", "queued", ("12",)),
        ("running", "RUNNING", "None", "running", ()),
        ("queued", "CANCELLED", "None", "stopped", ("12", "cancelled")),
        ("running", "CANCELLED", "None", "stopped", ("12", "cancelled")),
        ("queued", "", "", "stopped", ("cancelled",)),
        ("running", "", "", "running", ()),
        ("running", "COMPLETED", "None", "running", ()),
        ("queued", "COMPLETED", "None", "failed", ("12", "job.log")),
        ("queued", "NODE_FAIL", "None", "failed", ("12", "NODE_FAIL", "job.log")),
        ("queued", "unknown", "Unable to contact", "queued", ("Unable to contact",)),
    ],
)
def test_a_run_without_a_supervisor_is_what_slurm_says_of_its_job(
    state, slurm, reason, settles, facts
):
    record = {"run": "evening", "node": "desk", "state": state, "job": ""}
    job = "12" if slurm not in ("", "unknown") else ""
    found = settled(record, {"job": job, "state": slurm, "reason": reason})
    assert found["state"] == settles
    assert found is record or found["job"] == job
    if facts:
        assert_names(found["cause"]["message"], *facts)


def observed(state: str, slurm: str):
    queue = {"job": "12", "state": slurm, "reason": "Resources"}
    nodes = {
        name: digest(name, state, alive=False, record_more={"job": ""}) | {"queue": queue}
        for name in ("desk", "laptop")
    }
    (run,) = observed_runs({name: [each] for name, each in nodes.items()})
    return run


def test_a_queued_run_is_under_way_and_its_status_has_job_and_reason():
    run = observed("queued", "PENDING")
    assert (run.state, run.alive, run.job, run.missing) == ("queued", True, "12", [])
    assert_names(run.why, "12", "Resources")
    shown = status([run], {}, {}, "2026-11-20T20:10:00+00:00")
    assert (shown["verdict"], shown["runs"][0]["job"]) == ("good", "12")
    assert_names("\n".join(status_lines(shown, 118)), "queued", "12", "Resources")


def test_a_run_whose_job_slurm_cancelled_is_stopped_and_one_without_a_word_lost():
    assert (observed("queued", "CANCELLED").state, observed("queued", "CANCELLED").alive) == (
        "stopped",
        False,
    )
    lost = observed("running", "COMPLETED")
    assert (lost.state, lost.why) == ("lost", f"desk: {GONE}; laptop: {GONE}")
