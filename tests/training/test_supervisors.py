"""Supervisors, torchrun and ranks as real processes on loopback.

Where the launcher itself is not the subject, a stand-in that starts faster takes torchrun's place;
the tests that say so in their name use torchrun and gloo.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil
import pytest
from support.facts import assert_names
from support.programs import stand_in
from support.ranks import python, refused
from support.rotated import in_turn
from support.strangers import answers
from support.supervisors import LOOP, TOKEN, TRAINING, Nodes, free_port
from support.waiting import until

from hearth.diagnose.catalogue import diagnosis

NEVER_STOPS = LOOP.replace('Path("stop").exists()', "False")
RAISED = "ValueError: the loss is not finite"

TORCH_LOOP = """
import os, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
assert dist.get_world_size() == int(os.environ["WORLD"])
for step in range(int(os.environ.get("STEPS", 1000))):
    dist.all_reduce(torch.ones(8))
    print("step", step, flush=True)
    if os.environ.get("RAISES") == os.environ["RANK"] and step == 3:
        raise ValueError("the loss is not finite")
    time.sleep(0.05)
dist.barrier()
dist.destroy_process_group()
"""

IGNORES_SIGTERM = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
# A child that left its parent and its session, as data loaders and loggers may.
subprocess.Popen([sys.executable, "-c", "import os, time\\nif os.fork(): os._exit(0)\\n"
                  "os.setsid(); time.sleep(600)"])
"""


def with_torchrun(make, count: int, nproc: int = 1, **changes: str) -> Nodes:
    # On a node the code lies beside the script.
    code = {"PYTHONPATH": str(TRAINING), "OMP_NUM_THREADS": "1"}
    environment = {**code, "WORLD": str(count * nproc), **changes}
    return make(count, TORCH_LOOP, python=sys.executable, nproc=nproc, environment=environment)


def causes(records) -> list[dict]:
    return [record["cause"] for record in records.values()]


# Meeting


@pytest.mark.rotated
def test_two_nodes_with_unlike_numbers_of_ranks_train_under_torchrun_and_finish(nodes):
    run = with_torchrun(nodes, 2, WORLD="3", STEPS="5")
    for node in run.names:  # both connect to the store from 127.0.0.1
        run.change(node, addresses=["127.0.0.2", "127.0.0.3"], nprocs=[2, 1])
    run.change("node0", nproc=2)
    run.start()
    for node, record in run.wait().items():
        assert (record["state"], record["exit_code"], record["cause"]) == ("finished", 0, None)
        assert record["command"][record["command"].index("--node-rank") + 1] == node[-1]
        story = run.log(node)
        assert story.index("starting torchrun") < story.index("step 4") < story.index("finished")
        assert story.count("step 3") == (2 if node == "node0" else 1)
    assert os.listdir(run.workspace("node0") / "logs") == ["first.log"]
    assert run.status("node0")["alive"] is False


@pytest.mark.rotated
def test_under_torchrun_everything_listens_on_the_cluster_addresses_only(nodes):
    run = with_torchrun(nodes, 2)
    run.start()
    run.until_steps()
    listening = {
        (*connection.laddr, process.pid)
        for node in run.names
        for process in (psutil.Process(run.supervisor(node).pid), *run.processes(node))
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert {address for address, *_ in listening} <= {"127.0.0.1", "127.0.0.2"}
    hub, store = run.supervisor("node0").pid, run.torchrun("node0").pid
    ours = {pid: (address, port) for address, port, pid in listening if pid in (hub, store)}
    assert ours.keys() == {hub, store}
    for place in ours.values():
        assert answers(place, "127.0.0.1")  # from which both nodes connect here
        assert not answers(place, "127.0.0.9")


@pytest.mark.rotated
def test_under_torchrun_a_port_that_was_taken_in_the_last_moment_is_named(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        alone = ("--rdzv-backend=static", "--nnodes=1", "--node-rank=0", "--nproc-per-node=1")
        place = ("--master-addr=127.0.0.1", f"--master-port={port}")
        done = python(tmp_path, "-m", "hearth.trainer.torchrun", *alone, *place, script)
    refused(done, "hearth: error:", f"port {port}", "127.0.0.1")


@pytest.mark.rotated
def test_nobody_starts_before_all_three_are_there_at_the_same_time(nodes):
    run = nodes(3, environment={"STEPS": "3"})
    run.start("node2", "node0")
    until(lambda: run.record("node2")["missing"] == ["node1"])
    assert run.record("node0")["state"] == run.record("node2")["state"] == "waiting"
    assert not run.processes("node0")
    run.kill("node2")
    until(lambda: run.record("node0")["missing"] == ["node1", "node2"])
    run.start("node1", "node2")
    assert [record["state"] for record in run.wait().values()] == ["finished"] * 3


def test_each_node_gets_its_own_rank_and_interface_and_nothing_else(nodes):
    script = "import os; print(sorted(os.environ.items()))"
    run = nodes(2, script)
    run.start()
    run.wait()
    for node, other in (("node0", "node1"), ("node1", "node0")):
        told = run.log(node)
        for pair in (
            ("GLOO_SOCKET_IFNAME", "lo"),
            ("NCCL_SOCKET_IFNAME", "=lo"),
            ("NCCL_SOCKET_FAMILY", "AF_INET"),
            ("HEARTH_NODE", node),
            ("RANK", node[-1]),
        ):
            assert repr(pair) in told
        assert str(run.workspace(other)) not in told
        assert "secret" not in told


@pytest.mark.rotated
def test_nothing_that_lies_in_the_folder_of_a_run_is_imported(nodes, tmp_path):
    run = with_torchrun(nodes, 1, STEPS="2")
    results = run.workspace("node0") / "results" / "first"
    results.mkdir(parents=True)
    for name in ("torch.py", "json.py", "sitecustomize.py"):
        (results / name).write_text(f"open({str(tmp_path / 'it-was-run')!r}, 'w')")
    run.start()
    assert run.wait()["node0"]["state"] == "finished"
    assert not (tmp_path / "it-was-run").exists()


@pytest.mark.rotated
def test_the_token_is_never_sent(nodes):
    run = nodes(2, environment={"STEPS": "3"})
    run.start("node0")
    until(lambda: run.record("node0")["missing"] == ["node1"])
    port = int(run.log("node0").split("port ")[1].split()[0])
    heard = bytearray()

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(4096):
                heard.extend(part)
                target.sendall(part)
            target.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as between:
        between.settimeout(30)
        run.change("node1", ports=[between.getsockname()[1], free_port()])
        run.start("node1")
        ends = [between.accept()[0], socket.create_connection(("127.0.0.1", port), 20)]
    both = [threading.Thread(target=pass_on, args=pair) for pair in (ends, ends[::-1])]
    for thread in both:
        thread.start()
    assert [record["state"] for record in run.wait().values()] == ["finished"] * 2
    for thread, end in zip(both, ends, strict=True):
        thread.join(20)
        end.close()
    assert b"node1" in heard
    assert TOKEN.encode() not in heard


# Failing


@pytest.mark.rotated
def test_a_rank_that_raises_under_torchrun_ends_all_with_its_error(nodes):
    run = with_torchrun(nodes, 2, nproc=2, RAISES="2")
    run.start()
    records = run.wait()
    run.until_down()
    expected = {"node": "node1", "rank": 2, "kind": "rank_failed", "message": RAISED}
    assert causes(records) == [expected] * 2
    assert {record["state"] for record in records.values()} == {"failed"}
    assert f"failed: node1: {RAISED}" in run.log("node0")


@pytest.mark.rotated
def test_only_echoes_name_the_first_of_them(nodes):
    run = nodes(2, "raise RuntimeError('Connection closed by peer')")
    run.start()
    assert {cause["message"] for cause in causes(run.wait())} == {
        "RuntimeError: Connection closed by peer"
    }


@pytest.mark.rotated
@pytest.mark.parametrize(("victim", "count"), [("rank 2", 3), ("torchrun", 2)])
def test_kill_9_of_a_rank_or_of_torchrun_stops_all_nodes(nodes, victim, count):
    run = with_torchrun(nodes, count)
    run.start()
    run.until_steps()
    last = run.names[-1]
    (run.torchrun if victim == "torchrun" else run.rank)(last).kill()
    run.until_down()
    for cause in causes(run.wait()):
        assert (cause["node"], cause["kind"]) == (last, "rank_failed")
        assert cause["message"].startswith(victim)
        assert_names(cause["message"], "signal 9 (SIGKILL)")


@pytest.mark.rotated
def test_what_the_kernel_says_of_a_killed_rank_is_in_the_nodes_log(nodes, tmp_path, monkeypatch):
    said = "Out of memory: Killed process 4242 (python3) total-vm:53312244kB"
    stand_in = tmp_path / "bin" / "journalctl"
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!/bin/sh\necho '{said}'\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(stand_in.parent), prepend=":")
    kills_itself = "if os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)"
    run = nodes(2, f"import os, signal, time\n{kills_itself}\ntime.sleep(60)")
    run.start()
    run.wait()
    run.until_down()
    assert f"kernel: {said}\n" in run.log("node1")
    error = "rank 1 was killed by signal 9 (SIGKILL)"
    assert diagnosis(error, run.log("node1")).id == "killed-for-memory"


@pytest.mark.parametrize(
    ("victim", "make"),
    [
        ("node0", None),
        pytest.param("node1", None, marks=pytest.mark.rotated),
        pytest.param("node1", with_torchrun, marks=pytest.mark.rotated),
    ],
    ids=["the first", "another", "another under torchrun"],
)
def test_kill_9_of_a_supervisor_takes_its_ranks_and_its_peers_along(nodes, victim, make):
    run = make(nodes, 2) if make else nodes(3)
    run.start()
    run.until_steps()
    run.supervisor(victim).kill()
    assert run.until_down() < (40 if make else 30)
    others = [name for name in run.names if name != victim]
    for record in run.wait(*others).values():
        assert record["state"] == "failed"
        assert (record["cause"]["node"], record["cause"]["kind"]) == (victim, "node_lost")
        assert_names(record["cause"]["message"], f"{victim} broke off")
    status = run.status(victim)
    assert (status["state"], status["alive"]) == ("running", False)


@pytest.mark.rotated
@pytest.mark.parametrize("victim", ["node0", "node2"])
def test_a_silent_supervisor_stops_its_peers_and_itself_when_it_wakes(nodes, victim):
    run = nodes(3, silence_timeout=3)
    run.start()
    run.until_steps()
    run.supervisor(victim).send_signal(signal.SIGSTOP)
    others = [name for name in run.names if name != victim]
    run.until_down(*others)
    for record in run.wait(*others).values():
        assert (record["cause"]["node"], record["cause"]["kind"]) == (victim, "node_lost")
        assert "silent" in record["cause"]["message"]
    run.supervisor(victim).send_signal(signal.SIGCONT)
    cause = run.wait(victim)[victim]["cause"]
    assert (cause["node"], cause["kind"]) == (victim, "node_lost")
    run.until_down(victim)


@pytest.mark.rotated
def test_ranks_that_ignore_sigterm_or_hide_in_another_session_end_too(nodes):
    run = nodes(2, IGNORES_SIGTERM + LOOP)
    run.start()
    run.until_steps()
    until(lambda: len(run.processes("node0")) == 3)
    run.supervisor("node1").kill()
    run.wait("node0")
    assert not run.processes("node0")


@pytest.mark.rotated
def test_a_command_that_cannot_be_run_is_the_cause(nodes):
    run = nodes(2)
    run.change("node1", python="/nowhere/python")
    run.start()
    for cause in causes(run.wait()):
        assert cause["node"] == "node1"
        assert_names(cause["message"], "/nowhere/python", "No such file")


# Stopping


@pytest.mark.parametrize("by_signal", [False, *in_turn(True)], ids=["stop", "SIGTERM"])
def test_stop_or_sigterm_lets_every_node_end_after_its_step(nodes, by_signal):
    run = nodes(3)
    run.start()
    run.until_steps()
    if by_signal:
        run.supervisor("node1").terminate()
    else:
        assert run.stop("node1") == {"ok": True, "asked": True, "state": "running"}
    for node, record in run.wait().items():
        assert (record["state"], record["exit_code"]) == ("stopped", 0)
        assert (record["cause"]["node"], record["cause"]["kind"]) == ("node1", "stopped")
        assert_names(record["cause"]["message"], "stopped", "on node1")
        assert not (run.workspace(node) / "results/first/stop").exists()
    assert run.stop("node1")["asked"] is False


@pytest.mark.rotated
def test_stop_now_kills(nodes):
    run = nodes(2, NEVER_STOPS)
    run.start()
    run.until_steps()
    run.stop("node0")
    time.sleep(1)
    assert all(run.processes(node) for node in run.names)
    run.stop("node0", "--now")
    assert run.until_down() < 20
    assert {record["state"] for record in run.wait().values()} == {"stopped"}


SCRIPT = """
import os, signal, sys, time

def saved(sign, frame):
    print("saved", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, saved)
for step in range(1000):
    print(f"step {step} {os.getcwd()}\\n", end="", flush=True)
    time.sleep(0.05)
"""


def of_a_person(make, count: int, script: str, **settings) -> Nodes:
    """Return nodes that run a script which knows nothing of Hearth."""
    run = make(count, script, **settings)
    for node in run.names:
        run.change(node, folder="scripts", arguments=[])
    return run


@pytest.mark.rotated
def test_a_persons_script_is_told_to_end_by_sigterm_on_every_node(nodes):
    run = of_a_person(nodes, 2, SCRIPT, nproc=2)
    run.start()
    run.until_steps()
    run.stop("node1")
    for node, record in run.wait().items():
        assert record["state"] == "stopped"
        assert record["script"] == "train.py"
        assert_names(record["cause"]["message"], "stopped", "on node1")
        assert run.log(node).count("saved") == 2
        assert f"step 2 {run.workspace(node)}/scripts" in run.log(node)


@pytest.mark.rotated
@pytest.mark.parametrize("what", ["signal.SIG_DFL", "signal.SIG_IGN"])
def test_a_script_that_knows_no_sigterm_is_stopped_and_has_not_failed(nodes, what):
    script = SCRIPT.replace("SIGTERM, saved", f"SIGTERM, {what}")
    run = of_a_person(nodes, 2, script, stop_grace=2)
    stop_in_vain(run, lambda: run.stop("node0"))


@pytest.mark.rotated
def test_sigterm_kills_after_the_grace(nodes):
    run = nodes(2, NEVER_STOPS, stop_grace=1)
    stop_in_vain(run, lambda: run.supervisor("node0").terminate())


def stop_in_vain(run: Nodes, ask) -> None:
    """Ask ranks to stop that do not, and see them killed after their grace."""
    run.start()
    run.until_steps()
    ask()
    assert {record["state"] for record in run.wait().values()} == {"stopped"}
    run.until_down()


@pytest.mark.rotated
def test_an_error_of_a_persons_script_comes_with_its_line(nodes):
    script = "import json\n\ndef read():\n    json.loads('{')\n\nread()\n"
    run = of_a_person(nodes, 2, script)
    run.start()
    for cause in causes(run.wait()):
        assert cause["message"].startswith("train.py:4: json.decoder.JSONDecodeError: ")


SAVES_LATE = SCRIPT.replace("def saved", "before = lambda: time.sleep(7)\n\ndef saved").replace(
    '    print("saved', '    before()\n    print("saved'
)
RAISES = """
import os
if step == 8 and os.environ["RANK"] == "1":
    raise ValueError("the row is bad")
"""


def test_a_healthy_persons_script_may_save_before_a_run_ends_by_another_ones_error(nodes):
    raises = "".join(f"    {line}\n" for line in RAISES.splitlines())
    run = of_a_person(nodes, 2, SAVES_LATE + raises, return_timeout=60)
    run.start()
    for cause in causes(run.wait()):
        assert cause["node"] == "node1"
        assert_names(cause["message"], "the row is bad")
    assert "saved" in run.log("node0")
    assert "saved" not in run.log("node1")


# One run a node, and the verbs


def test_a_second_run_on_a_node_is_refused_by_name(nodes):
    run = nodes(1)
    run.start()
    run.until_steps()
    run.change("node0", run="second")
    tries = [run.inspect("node0")]
    tries += [run.verb(verb, "--spec", run.spec("node0")) for verb in ("start", "run")]
    for status, answer in tries:
        assert status == 2
        assert any("run 'first'" in finding for finding in answer["findings"])
    assert run.record("node0")["state"] == "running"


@pytest.mark.rotated
def test_start_detaches_and_a_second_start_changes_nothing(nodes):
    run = nodes(1)
    status, first = run.verb("start", "--spec", run.spec("node0"))
    assert (status, first["started"]) == (0, True)
    assert os.getsid(first["pid"]) == first["pid"]
    run.until_steps()
    status, second = run.verb("start", "--spec", run.spec("node0"))
    assert status == 0
    alike = {"ok": True, "pid": first["pid"], "unit": None}
    assert second == alike | {"started": False, "state": "running"}
    run.stop("node0")
    until(lambda: run.record("node0")["state"] == "stopped")
    status, third = run.verb("start", "--spec", run.spec("node0"))
    assert (status, third["started"]) == (0, True)
    run.stop("node0", "--now")
    until(lambda: not run.status("node0")["alive"])


@pytest.mark.rotated
def test_a_secret_reaches_the_ranks_and_its_file_is_gone_before_they_run(nodes, tmp_path):
    run = nodes(1, "import os\nprint(len(os.environ['KEY']), 'letters', *os.listdir('../../..'))")
    run.spec("node0").with_suffix(".secrets").write_text('{"KEY": "planted-word"}')
    run.start()
    assert run.wait()["node0"]["state"] == "finished"
    (line,) = [line for line in run.log("node0").splitlines() if line.startswith("12 letters")]
    assert "node0.json" in line
    assert "node0.secrets" not in line
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"planted-word" in path.read_bytes()]


def test_secrets_that_cannot_be_read_end_the_start_and_are_not_shown(nodes):
    run = nodes(1)
    secrets = run.spec("node0").with_suffix(".secrets")
    secrets.write_text('{"KEY": "planted-word')
    status, answer = run.verb("run", "--spec", run.spec("node0"))
    assert status == 2
    (finding,) = answer["findings"]
    assert finding.startswith(f"{secrets}: ")
    assert "planted-word" not in finding


@pytest.mark.rotated
def test_after_a_crash_the_next_run_starts_and_ends_what_was_left(nodes):
    run = nodes(1)
    run.start()
    run.until_steps()
    torchrun, rank = run.torchrun("node0"), run.rank("node0")
    torchrun.suspend()  # so that it cannot end its rank when its supervisor dies
    run.kill("node0")
    assert run.status("node0")["alive"] is False
    assert rank.is_running()
    run.change("node0", environment={"STEPS": "3"})
    run.start()
    assert run.wait()["node0"]["state"] == "finished"
    psutil.wait_procs([torchrun, rank], timeout=5)
    assert not run.processes("node0")


def test_a_look_reports_everything_at_once_and_changes_nothing(nodes):
    run = nodes(1)
    run.change("node0", addresses=["192.0.2.7"])
    place = run.workspace("node0")
    (place / "results" / "first").mkdir(parents=True)
    (place / "results" / "first" / "run.yml").write_text("created: '2026-11-19T07:00:00Z'\n")
    (place / "checkpoints").write_text("in the way")
    before = sorted(place.rglob("*"))
    status, answer = run.inspect("node0")
    assert status == 2
    findings = "".join(answer["findings"])
    assert_names(findings, "address 192.0.2.7", "'first'", "--delete first")
    assert_names(findings, f"{place}/checkpoints/first", "written")
    assert sorted(place.rglob("*")) == before


def test_a_look_finds_a_free_port_and_nothing_against_the_files_of_the_same_run(nodes):
    run = nodes(1)
    run.change("node0", ports=[0])
    results = run.workspace("node0") / "results" / "first"
    results.mkdir(parents=True)
    (results / "run.yml").write_text(f"run: first\ncreated: {run.created}\n")
    status, answer = run.inspect("node0")
    assert (status, answer["findings"], answer["facts"]["interface"]) == (0, [], "lo")
    assert answer["facts"]["port"] > 0


def test_a_taken_meeting_port_is_named_by_look_and_start(nodes):
    run = nodes(1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        run.change("node0", ports=[port])
        for status, answer in (
            run.inspect("node0"),
            run.verb("start", "--spec", run.spec("node0")),
        ):
            assert status == 2
            assert_names(answer["findings"][0], f"port {port}", "127.0.0.1", "-e meeting_port=")


def test_a_stop_of_an_unknown_run_says_so(nodes):
    run = nodes(1)
    status, answer = run.verb("stop", "--workspace", run.workspace("node0"), "--run", "other")
    assert status == 2
    assert_names(answer["findings"][0], "'other'")


def test_only_the_standard_library_and_psutil_are_loaded():
    code = (
        "import sys; before = set(sys.modules);"
        "import hearth.supervisor.__main__, hearth.supervisor.member;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(*sorted(new - sys.stdlib_module_names))"
    )
    told = subprocess.check_output([sys.executable, "-c", code], text=True)
    # How this Python was built is a module of the library's, with a name of its own.
    found = {name for name in told.split() if not name.startswith("_sysconfigdata_")}
    assert found - {"_psutil_linux"} == {"hearth", "psutil"}


# Under Slurm


@pytest.mark.rotated
@pytest.mark.parametrize("again", [False, True], ids=["cancelled", "requeued"])
def test_slurm_ends_the_job_and_the_run_stops_or_goes_on_with_the_job(nodes, tmp_path, again):
    scontrol = stand_in(tmp_path / "programs" / "scontrol", f"echo Restarts={int(again)}")
    run = nodes(2, slurm=True, return_timeout=60)
    run.variables = {"SLURM_JOB_ID": "12", "PATH": f"{scontrol.parent}:{os.environ['PATH']}"}
    run.start()
    run.until_steps()
    run.end_job()
    records = run.wait()
    run.until_down()
    assert {record["job"] for record in records.values()} == {"12"}
    if not again:
        assert {record["state"] for record in records.values()} == {"stopped"}
        for cause in causes(records):
            assert_names(cause["message"], "12", "scancel")
        return
    assert {record["state"] for record in records.values()} <= {"running", "waiting"}
    run.variables["SLURM_RESTART_COUNT"] = "1"
    run.start()
    first = {node: record["generation"] for node, record in records.items()}
    until(lambda: all(run.record(node)["generation"] > first[node] for node in run.names))
    run.stop("node0")
    for record in run.wait().values():
        assert record["state"] == "stopped"
        assert_names(record["launches"][0]["cause"]["message"], "12")
