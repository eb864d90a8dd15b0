"""Runs under Slurm on three machines of the lab: queued, begun, requeued, cancelled and refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from support.facts import assert_names
from support.lab import READY, Controller, as_root, as_user, at_home, inside
from support.repository import ROOT
from support.runs import cluster, newest, record, start, steps, until_state, until_step
from support.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.rotated("runs under Slurm")]

NODES = ("tower", "laptop", "oldbox")
SLURM = ("-e", "launcher=slurm")
_ARGUMENTS = {"lightning": "--nodes 3 --epochs 2 --out {results}"}
KEY = "planted9876543210planted9876543210planted"


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_model, tiny_data) -> Iterator[Controller]:
    """A controller, and the nodes of a Slurm cluster that have its tiny model."""
    folder = tmp_path_factory.mktemp("home")
    with cluster(folder, NODES, tiny_model, tiny_data, "--slurm") as controller:
        yield controller


@pytest.fixture(autouse=True)
def idle(home) -> Iterator[None]:
    """Leave an empty queue and idle nodes to the next test."""
    yield
    as_user("tower", "scancel --me")
    as_root("tower", "scontrol update nodename=oldbox state=resume || true")
    until(lambda: queue() == [])


def queue(field: str = "%i") -> list[str]:
    """Return a field of each of the user's jobs that have not ended."""
    return as_user("tower", f"squeue --me --noheader --format='{field}'").splitlines()


def drain() -> None:
    as_root("tower", "scontrol update nodename=oldbox state=drain reason=fan")


def nothing_is_left() -> bool:
    """Return whether neither a job nor a process of a run is left anywhere."""
    supervisors = (at_home(node, "pgrep -f '[h]earth.supervise' || true") for node in NODES)
    return queue() == [] and not any(supervisors)


@pytest.mark.parametrize("kind", ["model", "plain", "lightning"])
def test_a_run_is_a_job_of_its_nodes_and_leaves_nothing_in_the_queue(home, kind):
    script = ROOT / "tests/fixtures/scripts" / kind / "train.py"
    words = {"script": str(script), "script_args": _ARGUMENTS.get(kind, "")}
    what = home.tiny(max_steps=3) if kind == "model" else ("-e", json.dumps(words))
    screen = home.play("train.yml", *READY, *SLURM, "-e", f"run={kind}", *what)
    assert f"{kind} finished" in screen
    jobs = {record(node, kind)["job"] for node in NODES}
    assert_names(screen, *jobs)
    assert len(jobs) == 1
    assert "--nodelist=tower,laptop,oldbox" in (home.runs / kind / "job.sbatch").read_text()
    until(nothing_is_left)


def test_a_run_waits_for_a_drained_node_by_name_and_begins_when_it_is_back(home):
    drain()
    start(home, "drained", *SLURM, max_steps=3)
    for verb in ("status", "logs"):
        assert_names(home.play(f"playbooks/{verb}.yml"), "drained", *queue(), "oldbox", "sinfo -R")
    assert {record(node, "drained")["state"] for node in NODES} == {"queued"}
    as_root("tower", "scontrol update nodename=oldbox state=resume")
    until_state("finished", "drained", NODES)
    until(nothing_is_left)


def test_a_run_that_waits_is_stopped_or_cancelled_and_can_be_resumed(home):
    drain()
    start(home, "early", *SLURM, max_steps=3)
    home.play("playbooks/stop.yml", *READY, "-e", "run=early")
    assert queue() == []
    assert {record(node, "early")["state"] for node in NODES} == {"stopped"}
    again = (*READY, *SLURM, "-e", "run=early", "-e", "wait=off")
    home.play("playbooks/resume.yml", *again)
    (job,) = queue()
    as_user("tower", f"scancel {job}")
    assert_names(home.play("playbooks/attach.yml", "-e", "run=early"), "stopped", job, "cancelled")
    as_root("tower", "scontrol update nodename=oldbox state=resume")
    home.play("playbooks/resume.yml", *again)
    until_state("finished", "early", NODES)


def test_a_requeued_job_goes_on_from_its_checkpoint_by_itself(home, monkeypatch):
    monkeypatch.setitem(home.environment, "WANDB_API_KEY", KEY)
    start(home, "requeued", *SLURM, max_steps=200, checkpoint_every=5)
    until_step("requeued", 12)
    (job,) = queue()
    as_user("tower", f"scontrol requeue {job}")
    until(lambda: queue("%T") == ["PENDING"])
    assert_names(home.play("playbooks/status.yml"), "queued", job, "BeginTime")
    as_root("tower", f"scontrol update jobid={job} StartTime=now")
    for node in NODES:  # the key comes back with the job, and from no file
        until(
            lambda node=node: int(
                inside(node, f"cat /proc/[0-9]*/environ 2>/dev/null | grep -ac {KEY}")
            )
        )
        assert at_home(node, f"grep -rl {KEY} ~ || true") == ""
    until_state("finished", "requeued", NODES)
    assert steps("requeued") == list(range(1, 201))
    for node in NODES:
        causes = [launch["cause"] for launch in record(node, "requeued")["launches"]]
        assert_names(" ".join(cause["message"] for cause in causes if cause), job)
    log = as_user("tower", "cat ai-cluster/logs/requeued.log")
    begun = re.findall(r"training from step (\d+) on", log)
    assert begun[0] == "0"
    assert int(begun[-1]) >= 10


def test_a_cancelled_run_is_stopped_with_that_cause_and_resumed(home):
    start(home, "cancelled", *SLURM, max_steps=1000, checkpoint_every=5)
    until_step("cancelled", 12)
    (job,) = queue()
    as_user("tower", f"scancel {job}")
    until_state("stopped", "cancelled", NODES)
    for node in NODES:
        assert_names(record(node, "cancelled")["cause"]["message"], job, "scancel")
    until(nothing_is_left)
    again = ("-e", "run=cancelled", "-e", f"max_steps={newest('tower', 'cancelled') + 20}")
    assert "cancelled finished" in home.play("playbooks/resume.yml", *READY, *SLURM, *again)


def test_what_slurm_does_not_take_is_refused_by_name_and_nothing_is_queued(home):
    typed = (*READY, *SLURM, *home.tiny(max_steps=3), "-e", "run=refused")
    screen = home.play("train.yml", *typed, "-e", "partition=gpu", status=2)
    assert_names(screen, "tower", "--partition=gpu", "lab", "-e partition=")
    as_root("tower", "systemctl stop slurmctld")
    try:
        screen = home.play("train.yml", *typed, status=2)
        assert_names(screen, *NODES, "slurmctld", "-e launcher=hearth")
    finally:
        as_root("tower", "systemctl start slurmctld")
    until(nothing_is_left)
    assert not (home.runs / "refused").exists()
    assert as_user("tower", "ls ai-cluster/results").split().count("refused") == 0


def limits(enforced: str) -> None:
    """Set what Slurm does with a job beyond a partition's limits: NO, it waits; ALL, refused."""
    conf = "/etc/slurm/slurm.conf"
    for node in NODES:
        as_root(node, f"sed -i /^EnforcePartLimits=/d {conf}")
        as_root(node, f"sed -i '1i EnforcePartLimits={enforced}' {conf}")
    as_root("tower", "scontrol reconfigure")


def test_a_partition_with_fewer_nodes_is_named_whether_slurm_refuses_the_job_or_lets_it_wait(home):
    pair = (*SLURM, "-e", "partition=pair")
    start(home, "wide", *pair, max_steps=3)
    status = home.play("playbooks/status.yml")
    assert_names(status, "wide", "queued", "fewer nodes")
    # Which of the two depends on which part of Slurm looked last.
    assert re.search(r"\bPartition(NodeLimit|Config)\b", status)
    home.play("playbooks/stop.yml", *READY, "-e", "run=wide")
    assert queue() == []
    limits("ALL")
    try:
        typed = (*READY, *pair, *home.tiny(max_steps=3), "-e", "run=wider")
        screen = home.play("train.yml", *typed, status=2)
        assert_names(screen, "tower,laptop,oldbox", "--partition=pair", "Node count")
        two = (*typed, "-e", "nodes=tower,laptop")
        assert "wider finished" in home.play("train.yml", *two)
    finally:
        limits("NO")
    until(nothing_is_left)
