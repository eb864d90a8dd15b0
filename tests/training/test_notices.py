"""Messages of real supervisors to a server on loopback: which arrive, and that they delay nothing.

A stand-in that starts faster takes torchrun's place.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil
import pytest
from support.facts import assert_names
from support.metric_lines import start_line, step_line, written
from support.phone import TOKEN, Phone, impatient, phone, telling
from support.programs import stand_in
from support.rotated import in_turn
from support.supervisors import Nodes
from support.waiting import until

RAISES = "raise RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')"
ENDS = "import time; time.sleep(1)"


@contextmanager
def dead(how: str) -> Iterator[str]:
    """Yield the address of a server that refuses connections, or that accepts and never answers."""
    if how == "silent":
        with phone(answers=False) as silent:
            yield silent.json
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    yield f"json://user:{TOKEN}@127.0.0.1:{port}/"


# Which arrive


@pytest.mark.parametrize("kind", [*in_turn("relaunched"), "in place"])
def test_one_node_says_that_a_run_has_finished(nodes, team, kind):
    with phone() as here:
        run = telling(nodes(3, ENDS) if kind == "relaunched" else team(3), here.ntfy, here.json)
        run.start()
        if kind == "in place":
            run.until_group()
            run.finish()
        assert {record["state"] for record in run.wait().values()} == {"finished"}
    assert here.titles == ["first finished"] * 2
    assert_names(here.arrived[0]["body"], "node0, node1, node2")
    assert_names(run.log("node0"), "the run has finished: ntfy: sent; json: sent")


@pytest.mark.rotated
@pytest.mark.parametrize("kind", ["relaunched", "in place"])
def test_a_failure_comes_with_node_cause_and_cure(nodes, team, kind):
    with phone() as here:
        run = nodes(2, ENDS) if kind == "relaunched" else team(2)
        (run.workspace("node1") / "scripts" / "train.py").write_text(RAISES)
        run.change("node0", hearth="hearth -i inventory/home")
        # First node0, which a failure at once would else find not there yet.
        telling(run, here.json).start("node0")
        until(lambda: run.record("node0")["missing"] == ["node1"])
        run.start("node1")
        assert {record["state"] for record in run.wait().values()} == {"failed"}
    (message,) = here.arrived
    assert message["title"] == "first failed on node1"
    *explained, more = message["body"].splitlines()
    assert "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB" in explained
    assert_names("".join(explained), "cause: The GPU has not the memory", "cure: ")
    assert more == ("more: hearth -i inventory/home logs first --nodes node1")


@pytest.mark.rotated
def test_the_message_of_a_run_of_the_trainer_tells_its_steps(nodes):
    with phone() as here:
        run = telling(nodes(1, ENDS), here.json)
        results = run.workspace("node0") / "results" / "first"
        results.mkdir(parents=True)
        (results / "metrics.jsonl").write_text(written(start_line("node0"), step_line(10.0)))
        run.start()
        run.wait()
    assert here.arrived[0]["body"].splitlines()[0].startswith("12 of 60 steps in ")


@pytest.mark.rotated
def test_a_stop_that_a_person_asked_for_is_no_message(nodes):
    with phone() as here:
        run = telling(nodes(2), here.json)
        run.start()
        run.until_steps()
        run.stop("node1")
        assert {record["state"] for record in run.wait().values()} == {"stopped"}
    assert here.arrived == []


def lose_and_return(run: Nodes, here: Phone, lost: str) -> list[str]:
    """Kill a node of a run that waits for it; return the titles once it goes on with it."""
    run.kill(lost)
    until(lambda: here.arrived)
    time.sleep(3)  # another node would have had its turn
    titles = here.titles
    run.start(lost)
    until(lambda: len(here.arrived) > len(titles))
    time.sleep(3)
    return titles + here.titles[len(titles) :]


@pytest.mark.rotated("a long wait is told")
@pytest.mark.parametrize("lost", ["node0", "node1"])
@pytest.mark.parametrize("kind", ["relaunched", "in place"])
def test_a_long_wait_for_a_node_and_its_end_are_told_once(nodes, team, tmp_path, kind, lost):
    with phone() as here:
        if kind == "relaunched":
            run = nodes(3, return_timeout=60)
            steps = run.until_steps
        else:
            run = team(3, elastic=False)
            steps = run.until_group
        impatient(telling(run, here.json), tmp_path)
        run.options = ("--unit", "no-such-unit.service")  # which keeps the secrets
        run.start()
        steps()
        titles = lose_and_return(run, here, lost)
        for node in run.names:
            run.supervisor(node).kill()
    assert titles == [f"first waits for {lost}", f"first goes on: {lost} is back"]
    wait = here.arrived[0]["body"]
    assert_names(wait, f"the supervisor of {lost} broke off", "goes on by itself", "gives up at")


@pytest.mark.rotated
def test_machines_that_the_house_has_are_no_message(team, tmp_path):
    with phone() as here:
        run = team(2)
        impatient(telling(run, here.json), tmp_path)
        run.start()
        first = run.until_group()
        for node in run.names:
            run.want(node)
        until(lambda: len(run.record("node0")["missing"]) == 2)
        time.sleep(9)
        for node in run.names:
            run.let_go(node)
        run.until_group(beyond=first)
        run.finish()
    assert here.titles == ["first finished"]


@pytest.mark.rotated
def test_under_slurm_the_end_of_a_job_is_told_and_the_addresses_stay_with_the_supervisor(
    nodes, tmp_path
):
    scontrol = stand_in(tmp_path / "programs" / "scontrol", "echo Reason=TimeLimit Restarts=0")
    with phone() as here:
        run = nodes(2, slurm=True)
        run.variables = {
            "SLURM_JOB_ID": "12",
            "HEARTH_NOTIFY": here.json,
            "PATH": f"{scontrol.parent}:/usr/bin:/bin",
        }
        run.start()
        run.until_steps()
        for node in run.names:
            for process in run.processes(node):
                assert TOKEN not in str(process.environ())
        run.end_job()
        run.wait()
    assert here.titles == ["first was stopped"]
    assert_names(here.arrived[0]["body"], "job 12", "time limit")


# What they do not do


@pytest.mark.rotated
@pytest.mark.parametrize("how", ["without messages", "refused", "silent"])
def test_a_dead_server_delays_neither_the_end_nor_the_next_run(nodes, how):
    """The record has the end, the lock is free and the next run starts while a message waits."""
    with ExitStack() as servers:
        run = nodes(1)
        if how != "without messages":
            telling(run, servers.enter_context(dead(how)))
        run.start()
        run.until_steps()
        enough, began = run.workspace("node0") / "results/first/enough", time.monotonic()
        enough.touch()
        until(lambda: run.record("node0")["state"] == "finished", 20)
        recorded = time.monotonic() - began
        until(lambda: not run.status("node0")["alive"], 20)
        free = time.monotonic() - began
        run.change("node0", run="second", environment={"STEPS": "3"})
        status, answer = run.verb("start", "--spec", run.spec("node0"))
        started = time.monotonic() - began
        sends = run.supervisor("node0").poll() is None
        run.run = "second"
        until(lambda: not run.status("node0")["alive"])
        run.run = "first"
        run.wait()
    print(f"{how}: record {recorded:.2f} s, lock {free:.2f} s, next run {started:.2f} s")
    assert (status, answer["started"]) == (0, True)
    if how == "silent":
        assert sends  # the next run has begun beside it
    if how != "without messages":
        assert_names(run.log("node0"), "the run has finished: json: not sent")


def test_no_token_is_in_a_file_a_command_line_or_the_environment_of_a_rank(nodes, tmp_path):
    with phone() as here:
        run = telling(nodes(2), here.ntfy, here.json, f"nosuch://{TOKEN}")
        run.start()
        run.until_steps()
        for node in run.names:
            own = psutil.Process(run.supervisor(node).pid)
            for process in (own, *run.processes(node)):
                assert "planted" not in " ".join([*process.cmdline(), *process.environ().values()])
            assert any("of-the-ranks" in p.environ().values() for p in run.processes(node))
            (run.workspace(node) / "results/first/enough").touch()
        run.wait()
    assert here.titles == ["first finished"] * 2
    assert_names(run.log("node0"), "nosuch: not an address that apprise knows")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 8
    assert [path for path in files if b"planted" in path.read_bytes()] == []


@pytest.mark.rotated
def test_a_supervisor_that_is_asked_to_end_waits_for_no_message(nodes):
    with phone(answers=False) as silent:
        run = telling(nodes(1, ENDS), silent.json)
        run.start()
        until(lambda: silent.arrived)
        assert run.record("node0")["state"] == "finished"
        run.supervisor("node0").terminate()
        began = time.monotonic()
        run.supervisor("node0").wait(5)
        assert time.monotonic() - began < 2


@pytest.mark.rotated
def test_a_message_under_way_outlives_the_ranks_that_are_cleared_away(nodes, tmp_path):
    """Clearing ranks ends every process below the supervisor but the one that sends."""
    with phone(answers=False) as silent:
        run = nodes(2, return_timeout=60)
        impatient(telling(run, silent.json), tmp_path)
        run.options = ("--unit", "no-such-unit.service")
        run.start()
        run.until_steps()
        run.kill("node1")
        until(lambda: silent.arrived)
        command = "hearth.notify"
        below = psutil.Process(run.supervisor("node0").pid).children()
        (sending,) = (each for each in below if command in " ".join(each.cmdline()))
        run.stop("node0", "--now")
        until(lambda: run.record("node0")["state"] == "stopped", 20)
        assert sending.is_running()


def test_no_library_for_messages_is_loaded_by_a_supervisor():
    code = "import hearth.supervisor.__main__, sys; print('apprise' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
