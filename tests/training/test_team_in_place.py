"""Supervisors of a run in place as real processes on loopback, with stand-ins of the ranks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import threading
import time
from contextlib import suppress

import pytest
from support.facts import assert_names
from support.programs import stand_in
from support.rotated import in_turn
from support.waiting import HANG, until
from support.walls import Walls

from hearth.supervisor.unit import LEFT


@pytest.mark.rotated
def test_three_nodes_form_a_group_and_finish(team):
    run = team(3)
    run.start()
    run.until_group()
    for record in run.finish().values():
        assert (record["state"], record["exit_code"], record["cause"]) == ("finished", 0, None)
        assert (record["missing"], record["launches"]) == ([], [])
    run.every_step_once()


@pytest.mark.parametrize("victim", ["node0", *in_turn("node1")])
def test_after_a_killed_rank_the_others_go_on_and_the_node_joins_again(team, victim):
    run = team(3)
    run.start()
    first = run.until_group()
    others = [name for name in run.names if name != victim]
    run.rank(victim).kill()
    until(lambda: f"of {len(others)} step" in run.log(others[0]))
    run.until_group(beyond=first + 1)
    for node, record in run.finish().items():
        assert (record["state"], record["cause"]) == ("finished", None)
        if node != victim:
            left, back = (each["cause"] for each in record["launches"])
            assert (left["node"], left["rank"], left["kind"]) == (
                victim,
                int(victim[-1]),
                "rank_failed",
            )
            assert_names(left["message"], "signal 9 (SIGKILL)")
            assert (back["node"], back["kind"]) == (victim, "node_back")
    run.every_step_once(*others)


@pytest.mark.parametrize("victim", ["node0", *in_turn("node2")])
def test_after_a_killed_supervisor_the_others_go_on_and_it_joins_again(team, victim):
    run = team(3)
    run.start()
    first = run.until_group()
    others = [name for name in run.names if name != victim]
    run.kill(victim)
    second = run.until_group(*others, beyond=first)
    for node in others:
        cause = run.record(node)["launches"][0]["cause"]
        assert (cause["node"], cause["kind"]) == (victim, "node_lost")
        assert_names(cause["message"], "broke off")
    run.start(victim)
    run.until_group(beyond=second)
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once(*others)


@pytest.mark.rotated
def test_several_ranks_of_a_node_are_started_again_together(team):
    run = team(2, nproc=2)
    run.start()
    first = run.until_group()
    run.torchrun("node1").children()[1].kill()
    run.until_group("node0", beyond=first)
    run.until_group(beyond=first + 1)
    records = run.finish()
    assert {record["state"] for record in records.values()} == {"finished"}
    cause = records["node0"]["launches"][0]["cause"]
    assert (cause["node"], cause["rank"]) == ("node1", 3)
    run.every_step_once("node0")


@pytest.mark.rotated
def test_a_killed_torchrun_is_started_again(team):
    run = team(2)
    run.start()
    first = run.until_group()
    run.torchrun("node1").kill()
    run.until_group(beyond=first + 1)
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    assert_names(run.record("node1")["launches"][0]["cause"]["message"], "torchrun was killed")


@pytest.mark.rotated
@pytest.mark.parametrize("victim", ["node0", "node1"])
def test_without_a_silent_supervisor_the_others_go_on_and_it_joins_when_it_wakes(team, victim):
    run = team(3, silence_timeout=5)
    run.start()
    first = run.until_group()
    others = [name for name in run.names if name != victim]
    run.supervisor(victim).send_signal(signal.SIGSTOP)
    second = run.until_group(*others, beyond=first)
    assert_names(run.record(others[0])["launches"][0]["cause"]["message"], victim, "silent for")
    run.supervisor(victim).send_signal(signal.SIGCONT)
    run.until_group(beyond=second)
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once(*others)


@pytest.mark.rotated
@pytest.mark.parametrize("victim", ["node0", "node1"])
def test_without_a_node_whose_disk_hangs_the_others_go_on_until_it_votes_again(team, victim):
    run = team(3)
    run.start()
    first = run.until_group()
    # To open it waits for a reader.
    hangs = run.results(victim) / f".votes.json.{run.supervisor(victim).pid}"
    os.mkfifo(hangs)
    run.rank("node2").kill()
    second = run.until_group(*(name for name in run.names if name != victim), beyond=first)
    disk = os.open(hangs, os.O_RDWR)
    run.until_group(beyond=second)
    os.close(disk)
    assert {record["state"] for record in run.finish().values()} == {"finished"}


@pytest.mark.rotated
def test_a_brief_pause_of_a_supervisor_ends_nothing(team):
    run = team(2, silence_timeout=6)
    run.start()
    first = run.until_group()
    run.supervisor("node1").send_signal(signal.SIGSTOP)
    time.sleep(2)
    run.supervisor("node1").send_signal(signal.SIGCONT)
    for record in run.finish().values():
        assert (record["state"], record["generation"], record["launches"]) == (
            "finished",
            first,
            [],
        )


@pytest.mark.rotated
def test_a_rank_that_hangs_is_named_killed_and_started_again(team):
    run = team(3, environment={"ALLOWED": "1"})
    run.start()
    first = run.until_group()
    run.rank("node1").suspend()
    second = run.until_group("node0", "node2", beyond=first)
    run.until_group(beyond=second)
    records = run.finish()
    assert {record["state"] for record in records.values()} == {"finished"}
    cause = records["node0"]["launches"][0]["cause"]
    assert (cause["node"], cause["rank"]) == ("node1", 1)
    assert_names(cause["message"], "rank 1 of node1 did nothing for", "it hangs")


@pytest.mark.rotated
def test_a_ranks_own_error_ends_the_run_with_one_cause_on_all_nodes(team):
    run = team(3)
    run.start()
    run.until_group()
    (run.results("node2") / "raise").touch()
    error = "ValueError: the loss is not finite"
    expected = {"node": "node2", "rank": 2, "kind": "rank_failed", "message": error}
    for record in run.wait().values():
        assert (record["state"], record["cause"]) == ("failed", expected)
    run.until_down()
    for node in ("node0", "node1"):  # each keeps the state that it had
        last = max(step for *_, step in run.steps(node))
        assert f"saved step {last}" in run.log(node)


def test_a_card_that_fails_puts_only_its_node_apart_and_the_others_go_on(team):
    run = team(3)
    run.start()
    first = run.until_group()
    error = "CUDA error: unspecified launch failure"
    (run.results("node0") / "raise").write_text(error)
    alone = run.until_group("node1", "node2", beyond=first)
    run.until_group(beyond=alone)
    for record in run.finish().values():
        assert (record["state"], record["cause"]) == ("finished", None)
    cause = run.record("node1")["launches"][0]["cause"]
    assert (cause["node"], cause["rank"], cause["kind"]) == ("node0", 0, "rank_failed")
    assert_names(cause["message"], error)
    run.every_step_once("node1", "node2")


@pytest.mark.rotated
def test_starts_that_lead_nowhere_come_to_an_end(team):
    run = team(2, return_timeout=30)
    script = run.workspace("node1") / "scripts" / "train.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    run.start()
    for record in run.wait().values():
        assert record["state"] == "failed"
        assert record["cause"]["node"] == "node1"
        assert_names(record["cause"]["message"], "signal 9 (SIGKILL)", "4 starts in a row")


@pytest.mark.rotated
def test_a_command_that_cannot_be_run_is_the_cause(team):
    run = team(2)
    run.change("node1", python="/nowhere/python")
    run.start("node0")  # which a failure at once would else find not there yet
    until(lambda: run.record("node0")["missing"] == ["node1"])
    run.start("node1")
    for record in run.wait().values():
        assert record["cause"]["node"] == "node1"
        assert_names(record["cause"]["message"], "/nowhere/python", "No such file")


# Waiting


@pytest.mark.rotated
def test_a_missing_node_is_named_on_all_that_are_there(team):
    run = team(3, ready_timeout=10)
    run.start("node1", "node2")
    for record in run.wait("node1", "node2").values():
        assert (record["state"], record["missing"]) == ("failed", ["node0"])
        assert (record["cause"]["node"], record["cause"]["kind"]) == ("node0", "not_ready")
        assert_names(record["cause"]["message"], "node0", "10 s", "127.0.0.1 port", "firewall")


@pytest.mark.rotated
def test_a_node_with_another_token_is_named_with_the_reason(team):
    run = team(2, ready_timeout=10)
    run.change("node1", token="another-secret-of-another-run")
    run.start()
    records = run.wait()
    assert_names(records["node0"]["cause"]["message"], "node1", "token")
    assert records["node0"]["missing"] == ["node1"]
    assert "secret" not in run.log("node0") + run.log("node1")


@pytest.mark.rotated
@pytest.mark.parametrize("victim", ["node0", "node1"])
def test_of_two_nodes_the_first_goes_on_alone_and_the_other_waits(team, victim):
    run = team(2)
    run.start()
    first = run.until_group()
    (other,) = {*run.names} - {victim}
    run.kill(victim)
    if other == "node0":
        run.until_group("node0", beyond=first)
    else:
        until(lambda: run.record(other)["missing"] == [victim])
        assert run.record(other)["state"] == "waiting"
        assert run.record(other)["launches"][0]["cause"]["node"] == victim
    run.start(victim)
    run.until_group(beyond=first)
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once(other)


@pytest.mark.rotated
def test_without_elastic_the_others_wait_with_their_ranks_alive(team):
    run = team(3, elastic=False)
    run.start()
    first = run.until_group()
    run.kill("node2")
    until(lambda: run.record("node0")["missing"] == ["node2"])
    ranks = [run.rank(name).pid for name in ("node0", "node1")]
    run.start("node2")
    run.until_group(beyond=first)
    assert [run.rank(name).pid for name in ("node0", "node1")] == ranks
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once()


@pytest.mark.rotated
def test_who_never_comes_back_ends_the_run_with_its_loss(team):
    run = team(2, return_timeout=10, ready_timeout=10)
    run.start()
    run.until_group()
    run.kill("node0")
    record = run.wait("node1")["node1"]
    assert (record["state"], record["cause"]["node"]) == ("failed", "node0")
    assert_names(record["cause"]["message"], "node0 broke off", "did not come back within 10 s")


@pytest.mark.rotated
def test_without_a_return_the_first_loss_ends_the_run(team):
    run = team(3, return_timeout=0)
    run.start()
    run.until_group()
    run.kill("node1")
    for record in run.wait("node0", "node2").values():
        assert (record["state"], record["cause"]["kind"]) == ("failed", "node_lost")
        assert_names(record["cause"]["message"], "node1 broke off")


@pytest.mark.rotated
def test_a_node_that_lost_its_disk_joins_again(team):
    run = team(3)
    run.start()
    first = run.until_group()
    run.kill("node1")
    second = run.until_group("node0", "node2", beyond=first)
    shutil.rmtree(run.results("node1"))
    run.start("node1")
    run.until_group(beyond=second)
    assert {record["state"] for record in run.finish().values()} == {"finished"}


@pytest.mark.rotated
def test_a_node_that_comes_back_after_the_end_learns_of_it(team):
    run = team(3, ready_timeout=10)
    run.start()
    first = run.until_group()
    until(lambda: run.record("node2")["state"] == "running")
    run.kill("node2")
    run.until_group("node0", "node1", beyond=first)
    run.finish("node0", "node1")
    run.start("node2")
    cause = run.wait("node2")["node2"]["cause"]
    assert (cause["node"], cause["kind"]) == ("node2", "node_lost")
    assert_names(cause["message"], "the others have ended")


class Cable:
    """A node's connection to another through a port of this process."""

    def __init__(self, run, dialer: str, target: str) -> None:
        spec = json.loads(run.spec(dialer).read_text())
        rank = run.names.index(target)
        self._target = (spec["addresses"][rank], spec["ports"][rank])
        self._ends: list[socket.socket] = []
        self._server = socket.create_server((spec["addresses"][rank], 0))
        self._port = self._server.getsockname()[1]
        spec["ports"][rank] = self._port
        run.change(dialer, ports=spec["ports"])
        self.plug()

    def plug(self) -> None:
        if self._server is None:
            self._server = socket.create_server((self._target[0], self._port))
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def cut(self) -> None:
        server, self._server = self._server, None
        for each in [server, *self._ends]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._ends = []

    def _accept(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near = server.accept()[0]
                try:
                    far = socket.create_connection(self._target)
                except OSError:  # the node does not listen yet
                    near.close()
                    continue
                self._ends += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(4096):
                target.sendall(part)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.mark.rotated
def test_two_nodes_that_do_not_reach_each_other_are_in_no_group_together(team):
    run = team(3)
    cable = Cable(run, "node2", "node0")
    run.start()
    first = run.until_group()
    cable.cut()
    second = run.until_group("node0", "node1", beyond=first)
    before = run.steps("node2")
    assert [each for each in before if each[2] == 2] == []
    cable.plug()
    run.until_group(beyond=second)
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once("node0", "node1")
    cable.cut()


@pytest.mark.rotated
def test_of_a_cut_network_the_smaller_part_waits(team):
    run = team(3)
    cables = [Cable(run, "node1", "node0"), Cable(run, "node2", "node0")]
    run.start()
    first = run.until_group()
    for cable in cables:
        cable.cut()
    second = run.until_group("node1", "node2", beyond=first)
    until(lambda: run.record("node0")["missing"] == ["node1", "node2"])
    assert run.record("node0")["state"] == "waiting"
    assert max(each[0] for each in run.steps("node0")) < second
    for cable in cables:
        cable.plug()
    run.until_group(beyond=second)
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once("node1", "node2")
    for cable in cables:
        cable.cut()


# Leaving and stopping


@pytest.mark.rotated
@pytest.mark.parametrize("node", ["node0", "node2"])
def test_a_node_that_has_to_end_leaves_in_order_and_the_run_stays_open_there(
    team, tmp_path, monkeypatch, node
):
    """A stand-in of systemctl answers as where the user's systemd is stopped."""
    monkeypatch.setenv("PATH", f"{tmp_path}/programs:{os.environ['PATH']}")
    answers = 'case "$*" in "--user is-system"*) echo stopping;; *) echo deactivating;; esac'
    stand_in(tmp_path / "programs" / "systemctl", answers)
    run = team(3)
    run.options = ("--unit", "hearth-first.service")
    run.start()
    first = run.until_group()
    others = [name for name in run.names if name != node]
    run.supervisor(node).terminate()
    assert run.supervisor(node).wait(HANG) == LEFT
    assert run.record(node)["state"] in ("running", "waiting")
    second = run.until_group(*others, beyond=first)
    for other in others:
        assert "broken" not in run.log(other)
        assert run.record(other)["launches"][0]["cause"]["node"] == node
    run.start(node)
    run.until_group(beyond=second)
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once(*others)


@pytest.mark.parametrize("node", ["node0", *in_turn("node1")])
def test_a_stop_on_any_node_ends_all_after_their_step(team, node):
    run = team(3)
    run.start()
    run.until_group()
    assert run.stop(node)["asked"]
    for name, record in run.wait().items():
        assert (record["state"], record["exit_code"]) == ("stopped", 0)
        assert (record["cause"]["node"], record["cause"]["kind"]) == (node, "stopped")
        assert_names(record["cause"]["message"], "stopped", f"on {node}")
        assert not (run.results(name) / "stop").exists()
        assert not (run.results(name) / "control").exists()
    run.every_step_once()


@pytest.mark.rotated
def test_a_stop_now_kills(team):
    run = team(2)
    run.start()
    run.until_group()
    for name in run.names:
        (run.results(name) / "hang").touch()
    run.stop("node1", "--now")
    assert {record["state"] for record in run.wait().values()} == {"stopped"}
    run.until_down()


@pytest.mark.rotated
def test_a_stop_before_all_are_there_ends_those_that_wait(team):
    run = team(3)
    run.start("node0", "node1")
    until(lambda: run.record("node0")["missing"] == ["node2"])
    run.stop("node1")
    for record in run.wait("node0", "node1").values():
        assert (record["state"], record["cause"]["kind"]) == ("stopped", "stopped")


@pytest.mark.rotated
def test_a_stop_while_the_others_wait_saves_their_state(team):
    run = team(3, elastic=False)
    run.start()
    run.until_group()
    run.kill("node0")
    until(lambda: run.record("node1")["missing"] == ["node0"])
    run.stop("node2")
    for node, record in run.wait("node1", "node2").items():
        assert record["state"] == "stopped"
        assert "saved step" in run.log(node)


@pytest.mark.rotated
@pytest.mark.parametrize("again", [False, True], ids=["cancelled", "requeued"])
def test_slurm_ends_the_job_and_the_run_stops_or_goes_on_with_the_job(team, tmp_path, again):
    scontrol = stand_in(tmp_path / "programs" / "scontrol", f"echo Restarts={int(again)}")
    run = team(2, slurm=True)
    run.variables = {"SLURM_JOB_ID": "12", "PATH": f"{scontrol.parent}:{os.environ['PATH']}"}
    run.start()
    first = run.until_group()
    run.end_job()
    records = run.wait()
    run.until_down()
    if not again:
        assert {record["state"] for record in records.values()} == {"stopped"}
        for record in records.values():
            assert_names(record["cause"]["message"], "12", "scancel")
        return
    assert {record["state"] for record in records.values()} <= {"running", "waiting"}
    run.variables["SLURM_RESTART_COUNT"] = "1"
    run.start()
    run.until_group(beyond=first)
    run.stop("node0")
    assert {record["state"] for record in run.wait().values()} == {"stopped"}


@pytest.mark.parametrize("walled", ["node0", *in_turn("node2")])
def test_a_node_behind_a_firewall_is_named_and_nobody_stops_for_it_until_it_is_down(
    team, walled, tmp_path
):
    run = team(3)
    walls = Walls(tmp_path, run)
    run.start()
    first = run.until_group()
    run.want("node2")
    second = run.until_group("node0", "node1", beyond=first)
    until(lambda: run.record("node2")["away"])
    walls.raise_on(walled)
    run.let_go("node2")
    until(lambda: run.record("node2")["unreached"])
    before = len(run.steps("node1"))
    time.sleep(3)
    assert {generation for generation, *_ in run.steps("node1")[before:]} == {second}
    assert len(run.steps("node1")) - before > 30  # of 60 at the pace of the ranks
    for node in run.names:
        pairs = run.record(node)["unreached"]
        assert any(walled in pair and "cannot reach" in pair for pair in pairs)
        assert f"cannot reach {walled} at 127.0.0." in run.log(node)
    walls.take_down(walled)
    run.until_group(beyond=second)
    assert run.record("node0")["unreached"] == []
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once("node0", "node1")
