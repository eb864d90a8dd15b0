"""From the log files of a run to the node that failed first, its cause and its cure."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names
from support.ranks import python, succeeded
from support.repository import ROOT

from hearth.diagnose import is_echo
from hearth.diagnose.__main__ import main
from hearth.diagnose.catalogue import diagnosis
from hearth.diagnose.logs import FirstFailure, failure_of

SAMPLES = ROOT / "tests" / "fixtures" / "torchrun"

RAISED = (SAMPLES / "rank-raised.log").read_text()
ECHO = (SAMPLES / "peer-raised.log").read_text()
KILLED = (SAMPLES / "rank-killed.log").read_text()
TOLD = (SAMPLES / "hearth-error.log").read_text()
LOSS = "ValueError: loss is nan at step 20"  # in rank-raised.log


def said(at: str, words: str) -> str:
    return f"hearth: 2026-11-20T07:{at}Z {words}\n"


def began(name: str) -> str:
    return said("10:00", f"run first: {name} is rank 0 of 2, meeting at 10.0.0.1 port 4000")


LOST = said("10:40", "failed: laptop: laptop was silent for 15 s: it hangs, sleeps, or its network")


@pytest.mark.parametrize("order", [("desk", "laptop"), ("laptop", "desk")])
def test_the_echoes_of_the_others_are_not_the_first_failure(order):
    logs = {"desk": ECHO, "laptop": RAISED}
    found = failure_of({node: logs[node] for node in order})
    assert found == FirstFailure("laptop", LOSS)


def test_of_two_failures_the_earlier_counts():
    logs = {
        "desk": RAISED + said("10:31", "torchrun ended with status 1"),
        "laptop": KILLED + said("10:30", "torchrun ended with status 1"),
    }
    assert failure_of(logs).node == "laptop"


def test_a_node_that_is_gone_has_no_error_but_its_peers_know():
    found = failure_of({"desk": ECHO + LOST, "laptop": began("laptop") + "step 3\n"})
    assert (found.node, found.has_cure) == ("laptop", False)
    assert_names(found.message, "laptop", "15 s")


def test_where_nobody_knows_more_an_echo_is_told():
    found = failure_of({"desk": ECHO})
    assert "closed by peer" in found.message


def test_an_error_of_an_earlier_launch_is_over():
    log = RAISED + said("11:00", "all nodes are ready; starting torchrun (generation 1)") + KILLED
    assert_names(failure_of({"desk": log}).message, "rank 1", "signal 9")
    late = "laptop did not get ready within 9 s"
    again = RAISED + began("desk") + said("12:00", f"failed: laptop: {late}")
    assert failure_of({"desk": again}) == FirstFailure("laptop", late)


def test_findings_of_several_lines_stay_together():
    log = began("desk") + said("10:20", "failed: laptop: it lacks a\n    and lacks b")
    told = "\n".join(("it lacks a", "and lacks b"))
    assert failure_of({"desk": log}) == FirstFailure("laptop", told, has_cure=True)


def test_a_line_of_a_megabyte_hides_no_error_and_costs_little_of_it():
    dump = "gloo \\x89PNG" * 100_000
    error = f"[rank1]: Traceback (most recent call last):\n[rank1]: {LOSS}\n"
    began = time.process_time()
    assert failure_of({"desk": dump}) is None
    assert diagnosis(dump) is None
    assert not is_echo(dump)
    assert failure_of({"desk": f"{dump}\n{error}{dump}\n"}) == FirstFailure("desk", LOSS)
    assert time.process_time() - began < 20 * calibrated()


def calibrated() -> float:
    """Return the CPU seconds of work that takes a tenth of a second or less on any computer."""
    began = time.process_time()
    sum(range(2_000_000))
    return time.process_time() - began


def test_an_error_commands_no_terminal(tmp_path, capsys):
    log = tmp_path / "desk.log"
    log.write_text(RAISED.replace("loss is nan", "loss is \x1b]0;title\x07\x1b[2Jnan"))
    main([str(log)])
    assert LOSS in capsys.readouterr().out


def test_other_texts_are_searched_line_by_line():
    log = "PLAY [all]\nfatal: [oldbox]: UNREACHABLE! => ssh: connect to host 10.0.0.9 port 22: x\n"
    assert_names(failure_of({"ansible": log}).message, "10.0.0.9 port 22")
    assert failure_of({"desk": "step 1\nstep 2\n"}) is None


def test_what_a_run_lived_on_with_is_no_failure():
    log = began("desk") + "warning: Connection reset by peer, trying again\nstep 2\n"
    assert failure_of({"desk": log + said("10:50", "finished")}) is None


@given(st.dictionaries(st.text(max_size=5), st.text(), max_size=3))
def test_any_text_is_read_without_an_error(logs):
    failure_of(logs)


def test_a_person_gets_node_cause_and_cure(tmp_path):
    (tmp_path / "desk.log").write_text(ECHO)
    (tmp_path / "laptop.log").write_text(RAISED)
    done = succeeded(python(tmp_path, "-m", "hearth.diagnose", *sorted(tmp_path.glob("*.log"))))
    error, cause, cure = done.stdout.splitlines()
    assert error == f"laptop: {LOSS}"
    found = diagnosis(LOSS)
    assert (cause, cure) == (f"    cause: {found.cause}", f"    cure: {found.cure}")


@pytest.mark.parametrize(
    ("text", "status", "lines"),
    [
        (RAISED.replace("is nan", "is odd"), 1, [f"desk: {LOSS}".replace("nan", "odd"), "cause"]),
        (TOLD, 0, ["desk: /data/x.jsonl:3: not JSON"]),  # Hearth's own words need no more
        ("step 1\n", 1, ["no error"]),
    ],
    ids=["unknown", "told by Hearth", "no error"],
)
def test_other_failures_are_shown_as_they_are(tmp_path, capsys, text, status, lines):
    log = tmp_path / "desk.log"
    log.write_text(text)
    assert main([str(log)]) == status
    shown = capsys.readouterr().out.splitlines()
    assert [line.strip()[: len(wanted)] for line, wanted in zip(shown, lines, strict=True)] == lines


def test_two_files_of_one_name_are_told_by_their_paths(tmp_path, capsys):
    for node, text in (("desk", ECHO), ("laptop", RAISED)):
        (tmp_path / node).mkdir()
        (tmp_path / node / "run.log").write_text(text)
    assert main([str(path) for path in sorted(tmp_path.glob("*/run.log"))]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}/laptop/run.log: ValueError")


def test_a_log_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["/nonexistent/desk.log"])
    assert ended.value.code == 2
    assert_names(capsys.readouterr().err, "/nonexistent/desk.log")
