"""A run's job of Slurm on a node, with stand-ins of Slurm's commands."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from support.facts import assert_names, refuses

from hearth.base.errors import LaunchError
from hearth.base.slurm import newest_job
from hearth.supervisor import job
from hearth.supervisor.__main__ import main
from hearth.supervisor.job import PROGRAMS, cancel, check, end_of_job, submit
from hearth.supervisor.preflight import check as start_findings
from hearth.supervisor.record import RunRecord, last_record
from hearth.supervisor.spec import Spec

SINFO = (
    "echo 'tower|gpu*|gpu:a100:4(S:0-1)'; echo 'laptop|gpu*|gpu:2,mps:100'; echo 'box|old|(null)'"
)
NODES = {"desk": "tower", "laptop": "laptop", "box": "box"}


@pytest.fixture
def spec(tmp_path) -> Spec:
    made = Spec(
        run="evening",
        node="desk",
        rank=0,
        nodes=("desk", "laptop"),
        addresses=("127.0.0.1", "127.0.0.2"),
        ports=(4711, 4711),
        nproc=1,
        nprocs=(1, 1),
        python="/p",
        workspace=tmp_path,
        token="t",
        slurm=True,
    )
    made.results.mkdir(parents=True)
    return made


@pytest.fixture
def slurm(program):
    """Put stand-ins of all of Slurm's commands on the path, each with a script of its own."""

    def put(**scripts: str) -> None:
        for name in PROGRAMS:
            program(name, scripts.get(name, "true"))

    return put


def test_slurm_says_which_gpus_it_has_and_what_it_takes_leaves_no_job(slurm, tmp_path):
    calls = tmp_path / "calls"
    slurm(sinfo=SINFO, sbatch=f"echo $* >>{calls}; echo 7", scancel=f"echo cancel $* >>{calls}")
    answer = check("tower", NODES, ["--partition=gpu"])
    assert answer == {"findings": [], "gpus": {"desk": 4, "laptop": 2, "box": 0}}
    submitted, cancelled = calls.read_text().splitlines()
    assert {"--hold", "--partition=gpu", "--nodelist=tower,laptop,box"} <= {*submitted.split()}
    assert cancelled == "cancel 7"


@pytest.mark.parametrize(
    ("own", "options", "scripts", "facts"),
    [
        ("tover", [], {}, ("tover", "tower", "hearth_slurm_node")),
        ("tower", ["--nodelist=box"], {}, ("--nodelist=box", "-e nodes=A,B")),
        ("tower", ["-w box"], {}, ("-w box",)),
        (
            "tower",
            ["--partition=x"],
            {"sbatch": "echo 'sbatch: error: invalid partition specified: x' >&2; exit 1"},
            ("tower,laptop,box", "--partition=x", "gpu, old", "-e partition="),
        ),
        (
            "tower",
            ["--account=x"],
            {"sbatch": "echo 'Invalid account or account/partition combination' >&2; exit 1"},
            ("--account=x", "sacctmgr", "-e account="),
        ),
        (
            "tower",
            [],
            {"sinfo": "echo 'slurm_load_partitions: Unable to contact' >&2; exit 1"},
            ("Unable to contact", "slurmctld", "-e launcher=hearth"),
        ),
    ],
)
def test_what_keeps_slurm_from_taking_a_job_is_one_finding_with_a_cure(
    slurm, own, options, scripts, facts
):
    slurm(**{"sinfo": SINFO, **scripts})
    (finding,) = check(own, NODES, options)["findings"]
    assert_names(finding, *facts)


def test_commands_that_are_missing_are_named(monkeypatch):
    monkeypatch.setattr(job.shutil, "which", lambda name: None if name == "sbatch" else name)
    (finding,) = check("tower", {}, [])["findings"]
    assert_names(finding, "sbatch", "slurm-client", "-e launcher=hearth")


def test_a_start_leaves_a_queued_record_and_the_submission_its_number(slurm, spec, tmp_path):
    seen = tmp_path / "seen"
    slurm(sbatch=f"env >{seen}; echo $* >>{seen}; echo '12;home'")
    file = tmp_path / "evening.json"
    file.write_text(json.dumps(asdict(spec), default=str))
    for verb, number in (("start", ""), ("submit", "12")):
        assert main([verb, "--spec", str(file)]) == 0
        record = last_record(spec)
        assert (record["state"], record["job"], record["launches"]) == ("queued", number, [])
    assert f"--parsable {spec.job_script}" in seen.read_text()
    assert "PYTHONPATH=" not in seen.read_text()  # of this node, and a job has others


def test_a_job_that_is_refused_names_its_script(slurm, spec):
    slurm(sbatch="echo 'sbatch: error: Batch job submission failed: no room' >&2; exit 1")
    with refuses(LaunchError, spec.job_script, "no room"):
        submit(spec)


def test_a_job_gets_the_addresses_of_messages_and_no_other_variable_of_hearth(
    slurm, spec, tmp_path, monkeypatch
):
    monkeypatch.setenv("HEARTH_NOTIFY", "ntfy://topic")
    monkeypatch.setenv("HEARTH_NODE", "desk")
    slurm(sbatch=f"env >{tmp_path}/environment; echo 12")
    assert submit(spec) == "12"
    given = (tmp_path / "environment").read_text().splitlines()
    assert [line for line in given if "HEARTH" in line] == ["HEARTH_NOTIFY=ntfy://topic"]


def test_a_supervisor_that_cannot_begin_closes_its_queued_record(spec, tmp_path, monkeypatch):
    RunRecord.from_spec(spec, state="queued", job="").write(spec.record)
    file = tmp_path / "evening.json"
    lost = asdict(spec) | {"addresses": ["192.0.2.1", "127.0.0.2"]}
    file.write_text(json.dumps(lost, default=str))
    assert main(["run", "--spec", str(file)]) == 2
    assert last_record(spec)["state"] == "failed"
    assert_names(last_record(spec)["cause"]["message"], "192.0.2.1")


@pytest.mark.parametrize(("state", "asked"), [("PENDING", True), ("", False)])
def test_the_stop_of_a_queued_run_cancels_its_job(slurm, spec, tmp_path, state, asked):
    queue = tmp_path / "queue"
    queue.write_text(f"12|{state}|Resources\n" if state else "")
    slurm(squeue=f"cat {queue}", scancel=f"[ $1 = 12 ] && echo '12|CANCELLED|None' >{queue}")
    RunRecord.from_spec(spec, state="queued", job="12").write(spec.record)
    words = ["stop", "--workspace", str(spec.workspace), "--run", spec.run]
    assert main(words) == 0
    assert last_record(spec)["state"] == last_record(spec)["cause"]["kind"] == "stopped"
    assert ("CANCELLED" in queue.read_text()) == asked


@pytest.mark.parametrize(("state", "free"), [("PENDING", False), ("CANCELLED", True), ("", True)])
def test_a_run_whose_job_is_in_the_queue_is_not_started_once_more(slurm, spec, state, free):
    slurm(squeue=f"echo '12|{state}|None'" if state else "true")
    RunRecord.from_spec(spec, state="queued", job="").write(spec.record)
    findings = start_findings(spec.workspace, spec.run, "127.0.0.1", 0)["findings"]
    assert (findings == []) == free
    if not free:
        assert_names(findings[0], "12", "evening", "stop")


def test_a_job_that_cannot_be_cancelled_is_named_and_its_record_stays(slurm, spec, monkeypatch):
    monkeypatch.setattr(job, "CANCEL_TIMEOUT", 0.3)
    slurm(squeue="echo '12|PENDING|None'", scancel="echo 'scancel: error: denied' >&2; exit 1")
    record = asdict(RunRecord.from_spec(spec, state="queued", job="12"))
    with refuses(LaunchError, "desk", "evening", "denied", "scancel 12"):
        cancel(spec.workspace, record)
    assert not spec.record.exists()


@pytest.mark.parametrize(
    ("facts", "before", "again", "word"),
    [
        ("Restarts=1 Reason=None", "", True, "back"),
        ("Restarts=1 Reason=None", "1", False, "scancel"),
        ("Restarts=0 Reason=TimeLimit", "", False, "limit"),
        ("", "", False, "scancel"),  # Slurm does not answer
    ],
)
def test_a_job_that_is_requeued_is_told_from_one_that_ends(
    slurm, monkeypatch, facts, before, again, word
):
    slurm(scontrol=f"echo 'JobId=12 {facts} Command=/a b=c'")
    monkeypatch.setenv("SLURM_RESTART_COUNT", before)
    found, why = end_of_job("12")
    assert found == again
    assert_names(why, "12", word)


@pytest.mark.parametrize(
    ("answer", "job"),
    [
        ((0, "9|CANCELLED|None\n12|PENDING|ReqNodeNotAvail, UnavailableNodes:a|b\n", ""),
         ("12", "PENDING", "ReqNodeNotAvail, UnavailableNodes:a|b")),
        ((0, "", ""), ("", "", "")),
        ((1, "", "slurm_load_jobs error: Unable to contact\n"),
         ("", "unknown", "slurm_load_jobs error: Unable to contact")),
    ],
)  # fmt: skip
def test_the_newest_job_of_a_run_counts(answer, job):
    assert tuple(newest_job(*answer).values()) == job
