"""The last real error of a log; the samples were printed by torchrun 2.13 and trimmed."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.facts import assert_names
from support.repository import ROOT

from hearth.diagnose import RankError, failed_status, first_failure, is_echo, last_error

SAMPLES = ROOT / "tests" / "fixtures" / "torchrun"


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.log").read_text()


@pytest.mark.parametrize(
    ("name", "rank", "start"),
    [
        ("rank-raised", 1, "ValueError: loss is nan at step 20"),
        ("chained", 1, "RuntimeError: cannot save the checkpoint\nno space on /data"),
        ("hearth-error", 1, "/data/x.jsonl:3: not JSON"),
        ("module-missing", 0, "ModuleNotFoundError: No module named 'nothere'"),
        ("syntax-error", 0, "SyntaxError: invalid syntax"),
        ("store-port-taken", None, "torch.distributed.DistNetworkError: The server"),
        ("name-unknown", 1, "torch.distributed.DistNetworkError: The client"),
        ("two-ranks-one-raised", 1, "ValueError: loss is nan at step 20"),
    ],
)
def test_the_real_error_of_a_node_is_found(name, rank, start):
    error = last_error(sample(name))
    assert error.rank == rank
    assert error.message.startswith(start)
    assert not is_echo(error.message)


@pytest.mark.parametrize(
    ("name", "rank", "facts"),
    [
        ("rank-killed", 1, ["signal 9", "SIGKILL"]),
        ("segfault", 1, ["signal 11", "SIGSEGV"]),
        ("aborted", 1, ["signal 6", "SIGABRT"]),
        ("ended-silently", 0, ["status 5"]),
        ("script-missing", 0, ["/home/ada/ai-cluster/scripts/missing.py"]),
    ],
)
def test_the_end_of_a_rank_without_an_exception_is_told_by_its_signal_or_status(name, rank, facts):
    error = last_error(sample(name))
    assert error.rank == rank
    assert_names(error.message, *facts, *([] if name == "script-missing" else [f"rank {rank}"]))
    assert not is_echo(error.message)


@pytest.mark.parametrize("name", ["rank-killed", "rank-raised"])
def test_of_a_torchrun_of_one_node_the_rank_is_counted_from_its_first(name):
    local = last_error(sample(name)).rank
    error = last_error(sample(name), first_rank=4)
    assert error.rank == 4 + local
    assert last_error("[rank1]: ValueError: no", first_rank=4) is None
    raised = "[rank0]: Traceback (most recent call last):\n[rank0]: ValueError: no\n"
    assert last_error(raised, first_rank=4) == RankError(None, "ValueError: no")


@pytest.mark.parametrize(("name", "status"), [("rank-killed", -9), ("ended-silently", 5)])
def test_the_status_of_the_first_rank_to_fail_is_known(name, status):
    assert failed_status(sample(name)) == status
    assert failed_status("") is None


def test_a_wrong_option_of_a_script_is_its_error():
    usage = "usage: mine.py [-h] --rate RATE\nmine.py: error: argument --rate: invalid float value"
    silent = sample("ended-silently")
    error = last_error(f"{usage}\n{silent.replace(': 5', ': 2')}")
    assert error == RankError(0, "mine.py: error: argument --rate: invalid float value")
    assert_names(last_error(f"{usage}\n{silent}").message, "status 5")


def test_a_name_that_nobody_knows_is_told_with_the_time_out_that_it_ended_in():
    error = last_error(sample("name-unknown"))
    _, reason = error.message.splitlines()
    assert_names(reason, "(tower-pc, 29998)")
    other = sample("name-unknown").replace("of (tower-pc, ", "of (localhost, ")
    assert len(last_error(other).message.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("peer-raised", "closed by peer"),
        ("two-ranks-peer-raised", "closed by peer"),
        ("collective-timeout", "4000ms"),
        ("store-lost", "got 0 bytes"),
        ("terminated", "got signal: 15"),
    ],
)
def test_what_a_peer_prints_when_another_rank_is_gone_is_an_echo(name, part):
    error = last_error(sample(name))
    assert part in error.message
    assert is_echo(error.message)


@pytest.mark.parametrize(
    ("message", "echo"),
    [
        ("RuntimeError: Read error [10.0.0.2]:1: Connection reset by peer", True),
        ("NCCL error: remote process exited or there was a network error", True),
        ("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)", True),
        ("BrokenPipeError: [Errno 32] Broken pipe", True),
        ("KeyboardInterrupt", True),
        ("rank 1 was killed by signal 15 (SIGTERM)", True),
        ("rank 1 was killed by signal 9 (SIGKILL)", False),
        ("OSError: [Errno 28] No space left on device", False),
        ("ConnectionResetError(104, 'Connection reset by peer') https://example.org", False),
        ("HTTPSConnectionPool(host='hub'): Connection reset by peer", False),
        ("", False),
    ],
)
def test_echoes_are_told_from_real_causes(message, echo):
    assert is_echo(message) == echo


def test_the_supervisors_own_lines_are_no_errors():
    log = "hearth: 2026-11-20T07:10:10Z failed: laptop: ValueError: no\nstep 1\n"
    assert last_error(log) is None


def test_all_findings_of_hearth_are_kept_once():
    log = "hearth: error: a.jsonl:3: not JSON\nhearth: error: b.csv: no column\n"
    error = last_error(log + log + sample("rank-raised"))
    assert error == RankError(1, "a.jsonl:3: not JSON\nb.csv: no column", has_cure=True)


def test_an_exception_in_a_destructor_does_not_hide_the_real_one():
    log = sample("rank-raised") + (
        "Exception ignored in: <function Pool.__del__ at 0x7f>\n"
        "Traceback (most recent call last):\n"
        '  File "pool.py", line 1, in __del__\n'
        "AttributeError: 'NoneType' object has no attribute 'dumps'\n"
    )
    assert last_error(log) == last_error(sample("rank-raised"))


def test_an_uncaught_gloo_exception_in_a_thread_is_an_echo():
    log = sample("aborted").replace(
        "terminate called without an active exception",
        "terminate called after throwing an instance of 'gloo::IoException'\n"
        "  what():  [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:1",
    )
    error = last_error(log)
    assert_names(error.message, "rank 1", "SIGABRT", "pair.cc:553")
    assert is_echo(error.message)


def test_two_ranks_that_print_through_each_other_are_read_apart():
    first = [f"[rank0]: {line}" for line in _traceback("ValueError: zero")]
    second = [f"[rank1]: {line}" for line in _traceback("RuntimeError: Connection closed by peer")]
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    assert last_error("\n".join(mixed)) == RankError(0, "ValueError: zero")


def _traceback(message: str) -> list[str]:
    return ["Traceback (most recent call last):", '  File "t.py", line 1, in main', message]


@example(
    ['  File "x/api.py", line 383, in launch_agent', "Failures:", "    raise ChildFailedError("]
)
@given(st.lists(st.sampled_from(sample("two-ranks-one-raised").splitlines())))
def test_torn_logs_never_blame_torchrun(lines):
    error = last_error("\n".join(lines))
    assert error is None or "ChildFailedError" not in error.message


@given(st.lists(st.sampled_from(["Broken pipe", "ValueError: 1", "ValueError: 2", "SIGTERM"])))
def test_the_first_failure_is_the_earliest_that_is_no_echo(messages):
    failures = [RankError(n, message) for n, message in enumerate(messages)]
    first = first_failure(failures)
    real = [failure for failure in failures if not is_echo(failure.message)]
    assert first == (real or failures or [None])[0]
