"""From the log files of a run to the node that failed first, its cause and its cure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import HANG

from hearth.diagnose.__main__ import main
from hearth.diagnose.logs import Failure, failure_of

SAMPLES = Path(__file__).parents[2] / "fixtures" / "torchrun"
TRAINING = Path(__file__).parents[3] / "training"

RAISED = (SAMPLES / "rank-raised.log").read_text()
ECHO = (SAMPLES / "peer-raised.log").read_text()
KILLED = (SAMPLES / "rank-killed.log").read_text()
TOLD = (SAMPLES / "hearth-error.log").read_text()


def said(at: str, words: str) -> str:
    return f"hearth: 2026-11-20T07:{at}Z {words}\n"


def began(name: str) -> str:
    return said("10:00", f"run first: {name} is rank 0 of 2, meeting at 10.0.0.1 port 4000")


LOST = said("10:40", "failed: laptop: laptop was silent for 15 s: it hangs, sleeps, or its network")


@pytest.mark.parametrize("order", [("desk", "laptop"), ("laptop", "desk")])
def test_the_echoes_of_the_others_are_not_the_first_failure(order):
    logs = {"desk": ECHO, "laptop": RAISED}
    found = failure_of({node: logs[node] for node in order})
    assert found == Failure("laptop", "ValueError: loss is nan at step 20")


def test_of_two_failures_the_earlier_counts():
    logs = {
        "desk": RAISED + said("10:31", "torchrun ended with status 1"),
        "laptop": KILLED + said("10:30", "torchrun ended with status 1"),
    }
    assert failure_of(logs).node == "laptop"


def test_a_node_that_is_gone_has_no_error_but_its_peers_know():
    found = failure_of({"desk": ECHO + LOST, "laptop": began("laptop") + "step 3\n"})
    assert (found.node, found.has_cure) == ("laptop", False)
    assert found.message.startswith("laptop was silent for 15 s")


def test_where_nobody_knows_more_an_echo_is_told():
    found = failure_of({"desk": ECHO})
    assert "Connection closed by peer" in found.message


def test_an_error_of_an_earlier_launch_is_over():
    log = RAISED + said("11:00", "all nodes are ready; starting torchrun (generation 1)") + KILLED
    assert failure_of({"desk": log}).message.startswith("rank 1 was killed by signal 9")
    again = (
        RAISED
        + began("desk")
        + said("12:00", "failed: laptop: laptop did not get ready within 9 s")
    )
    assert failure_of({"desk": again}) == Failure("laptop", "laptop did not get ready within 9 s")


def test_findings_of_several_lines_stay_together():
    log = began("desk") + said("10:20", "failed: laptop: it lacks a\n    and lacks b")
    assert failure_of({"desk": log}) == Failure("laptop", "it lacks a\nand lacks b", has_cure=True)


def test_other_texts_are_searched_line_by_line():
    log = "PLAY [all]\nfatal: [oldbox]: UNREACHABLE! => ssh: connect to host 10.0.0.9 port 22: x\n"
    assert "connect to host 10.0.0.9" in failure_of({"ansible": log}).message
    assert failure_of({"desk": "step 1\nstep 2\n"}) is None


def test_what_a_run_lived_on_with_is_no_failure():
    log = began("desk") + "warning: Connection reset by peer, trying again\nstep 2\n"
    assert failure_of({"desk": log + said("10:50", "finished")}) is None


@given(st.dictionaries(st.text(max_size=5), st.text(), max_size=3))
def test_any_text_is_read_without_an_error(logs):
    failure_of(logs)


# -- on the command line ---------------------------------------------------------------------------


def test_a_person_gets_node_cause_and_cure(tmp_path):
    (tmp_path / "desk.log").write_text(ECHO)
    (tmp_path / "laptop.log").write_text(RAISED)
    done = subprocess.run(
        [sys.executable, "-m", "hearth.diagnose", *sorted(map(str, tmp_path.glob("*.log")))],
        capture_output=True,
        text=True,
        timeout=HANG,
        env={**os.environ, "PYTHONPATH": str(TRAINING)},
    )
    assert done.returncode == 0, done.stderr
    error, cause, cure = done.stdout.splitlines()
    assert error == "laptop: ValueError: loss is nan at step 20"
    assert cause.startswith("    cause: The loss became infinite")
    assert cure.startswith("    cure: ")


def test_an_unknown_failure_is_shown_as_it_is(tmp_path, capsys):
    log = tmp_path / "desk.log"
    log.write_text(RAISED.replace("loss is nan", "nobody knows why"))
    assert main([str(log)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "desk: ValueError: nobody knows why at step 20",
        "    cause: not known to Hearth; the error above is the first, as it was printed",
    ]


def test_what_hearth_said_is_left_as_it_is(tmp_path, capsys):
    log = tmp_path / "desk.log"
    log.write_text(TOLD)
    assert main([str(log)]) == 0
    assert capsys.readouterr().out == "desk: /data/x.jsonl:3: not JSON\n"


def test_logs_without_an_error_say_so(tmp_path, capsys):
    log = tmp_path / "desk.log"
    log.write_text("step 1\n")
    assert main([str(log)]) == 1
    assert capsys.readouterr().out == "no error in these logs\n"


def test_two_files_of_one_name_are_told_by_their_paths(tmp_path, capsys):
    for node, text in (("desk", ECHO), ("laptop", RAISED)):
        (tmp_path / node).mkdir()
        (tmp_path / node / "run.log").write_text(text)
    assert main([str(path) for path in sorted(tmp_path.glob("*/run.log"))]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}/laptop/run.log: ValueError")


@pytest.mark.parametrize("arguments", [[], ["/nonexistent/desk.log"]])
def test_without_a_log_there_is_a_hint(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "log" in capsys.readouterr().err
