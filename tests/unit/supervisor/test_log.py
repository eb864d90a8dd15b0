"""The end of a torchrun, as its log tells it."""

from __future__ import annotations

import shutil

import pytest
from support.facts import assert_names
from support.repository import ROOT

from hearth.base.errors import MachineError
from hearth.ranks.control_protocol import RANK_APART
from hearth.ranks.memory import row_too_large, stage_too_large, too_large_together
from hearth.record.checkpoint import not_written
from hearth.supervisor.log import LaunchLog, say
from hearth.supervisor.spec import Spec

EMPTY = (ROOT / "tests" / "fixtures" / "torchrun" / "reply-empty.log").read_text()


@pytest.fixture
def spec(tmp_path) -> Spec:
    return Spec(
        run="evening",
        node="laptop",
        rank=0,
        nodes=("laptop",),
        addresses=("127.0.0.1",),
        nproc=1,
        python="/env/bin/python",
        workspace=tmp_path,
        token="secret-of-this-run-only",
        environment={},
    )


@pytest.mark.parametrize(("free", "facts"), [(0, ["full", "free some space"]), (1 << 30, [])])
def test_a_log_that_a_full_disk_kept_from_telling_why_says_so(spec, monkeypatch, free, facts):
    log = LaunchLog(spec)
    log.begin()
    spec.log.parent.mkdir(parents=True, exist_ok=True)
    spec.log.write_text(EMPTY)
    usage = shutil.disk_usage(spec.workspace)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))
    message = log.failure(1, 0).message
    assert_names(message, "status 1", *facts, *([str(spec.log)] if facts else []))
    assert ("full" in message) == bool(facts)


@pytest.mark.parametrize(
    ("said", "status", "local"),
    [
        ("hearth: error: one row of 96 tokens does not fit into the memory", RANK_APART, True),
        ("hearth: error: the data has no such field", 2, False),
        ("Traceback (most recent call last):\nRuntimeError: CUDA error: unknown error", 1, True),
        ("Traceback (most recent call last):\nValueError: the row is bad", 1, False),
    ],
)
def test_an_error_of_the_machine_is_known_by_its_cause_or_by_the_ranks_own_word(
    spec, said, status, local
):
    log = LaunchLog(spec)
    log.begin()
    spec.log.parent.mkdir(parents=True, exist_ok=True)
    spec.log.write_text(
        f"{said}\n\nRoot Cause (first observed failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n"
        f"  exitcode  : {status} (pid: 1)\n"
    )
    assert log.failure(1, 0).local == local


def test_errors_of_memory_and_disk_are_those_of_a_machine(tmp_path):
    full = not_written(tmp_path, "the checkpoint", OSError(28, "No space left on device"))
    for error in (row_too_large(96), too_large_together(4), stage_too_large("rank 1", 96), full):
        assert isinstance(error, MachineError)


def test_whatever_a_stranger_or_a_rank_says_the_log_takes_it_and_commands_no_terminal(spec, capfd):
    spec.log.parent.mkdir(parents=True)
    say(spec, "laptop left: \x1b[2Jgone\x07 \udce4 for\nnow")
    (line, more) = spec.log.read_text().splitlines()
    assert line.endswith("laptop left: gone  for")
    assert more.endswith("now")
    assert "\x1b" not in capfd.readouterr().err
