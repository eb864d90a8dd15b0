"""The catalogue of failures: every real text leads to its own entry, and Hearth's words to none."""

from __future__ import annotations

import ast
import re

import pytest
from support.house import ROOT
from support.ranks import python
from support.troubleshooting import markdown

from hearth.diagnose import last_error
from hearth.diagnose.catalogue import Entry, diagnosis, entries, explained

FIXTURES = ROOT / "tests" / "fixtures" / "torchrun"
SEEN = [(entry, seen) for entry in entries() for seen in entry.seen]


def as_logged(kernel: str) -> str:
    return f"hearth: 2026-11-20T07:10:10Z kernel: {kernel}\n" if kernel else ""


def ids(of: list) -> list[str]:
    return [f"{entry.id}-{entry.seen.index(seen)}" for entry, seen in of]


# -- the entries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("entry", "seen"), SEEN, ids=ids(SEEN))
def test_a_real_text_leads_to_its_own_entry_and_to_no_other(entry, seen):
    assert diagnosis(seen.text, as_logged(seen.kernel)) == entry
    whole = f"{seen.text}\n{seen.kernel}"
    assert [other.id for other in entries() if other.fits(whole)] == [entry.id]


def test_no_id_is_used_twice():
    names = [entry.id for entry in entries()]
    assert len(names) == len(set(names)) >= 30


def test_a_cause_and_a_cure_are_short_enough_for_the_screen():
    for entry in entries():
        assert max(len(entry.cause), len(entry.cure)) <= 220, entry.id
        assert "\n" not in entry.cause + entry.cure


def test_what_is_said_to_be_provoked_is_provoked_by_a_test_that_exists():
    for entry, seen in SEEN:
        if seen.provoked:
            file, _, test = seen.source.partition("::")
            assert f"def {test}(" in (ROOT / file).read_text(), entry.id


@pytest.mark.parametrize(
    "broken",
    [
        {"match": ["("]},
        {"match": []},
        {"seen": []},
        {"id": "Two Words"},
        {"seen": [{"text": "x", "source": "somebody said so"}]},
        {"cures": "x"},
    ],
)
def test_an_entry_that_is_not_whole_is_refused(broken):
    whole = {
        "id": "new",
        "match": ["x"],
        "cause": "x",
        "cure": "x",
        "seen": [{"text": "x", "source": "https://example.org/1"}],
    }
    assert Entry.model_validate(whole)
    with pytest.raises(ValueError):
        Entry.model_validate(whole | broken)


def own_messages() -> set[str]:
    """Return Hearth's error messages, with a plain word in place of each placeholder."""
    found = set()
    rooms = (ROOT / "training" / "hearth", ROOT / "controller")
    for path in (each for room in rooms for each in room.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and re.search(r"\w*Error$", ast.unparse(node.func))):
                continue
            for words in node.args:
                match words:
                    case ast.Constant(str(text)):
                        found.add(text)
                    case ast.JoinedStr(parts):
                        pieces = (p.value if isinstance(p, ast.Constant) else "it" for p in parts)
                        found.add("".join(map(str, pieces)))
    return found


def test_what_hearth_says_itself_is_in_no_entry():
    messages = own_messages()
    assert len(messages) > 80
    assert {text: found.id for text in messages if (found := diagnosis(text))} == {}


# -- from the log of a node ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "wanted"),
    [
        ("rank-raised", "loss-not-finite"),
        ("rank-killed", "killed"),
        ("segfault", "crashed"),
        ("aborted", "crashed"),
        ("module-missing", "module-missing"),
        ("script-missing", "script-missing"),
        ("syntax-error", "script-broken"),
        ("store-port-taken", "port-taken"),
        ("two-ranks-one-raised", "loss-not-finite"),
        ("peer-raised", "peer-lost"),
        ("two-ranks-peer-raised", "peer-lost"),
        ("collective-timeout", "collective-timeout"),
        ("store-lost", "peer-lost"),
        ("terminated", "terminated"),
    ],
)
def test_what_torchrun_and_its_ranks_printed_is_known(log, wanted):
    text = (FIXTURES / f"{log}.log").read_text()
    assert diagnosis(last_error(text).message, text).id == wanted


PROVOKED = {
    "disk-full": "open('/dev/full', 'w', buffering=1).write('x\\n')",
    "file-missing": "open('/nonexistent/x')",
    "too-many-open-files": (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))\n"
        "kept = [open('/dev/null') for _ in range(20)]"
    ),
    "out-of-memory": (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\n"
        "bytes(1 << 29)"
    ),
    "port-taken": (
        "import socket\n"
        "first = socket.create_server(('127.0.0.1', 0))\n"
        "socket.socket().bind(first.getsockname())"
    ),
    "module-missing": "import nothere",
    "script-broken": "def (",
}


@pytest.mark.parametrize("wanted", PROVOKED)
def test_a_failure_that_is_provoked_is_named(tmp_path, wanted):
    done = python(tmp_path, "-c", PROVOKED[wanted])
    assert done.returncode == 1
    assert diagnosis(last_error(done.stderr).message).id == wanted


def test_the_kernels_word_decides_what_killed_a_rank():
    error = "rank 1 was killed by signal 9 (SIGKILL)"
    kernel = as_logged("Out of memory: Killed process 4242 (python3) total-vm:53312244kB")
    assert diagnosis(error).id == "killed"
    assert diagnosis(error, kernel).id == "killed-for-memory"


def test_the_kernels_word_does_not_explain_an_error_of_the_rank_itself():
    kernel = as_logged("Out of memory: Killed process 4242 (firefox) total-vm:53312244kB")
    assert diagnosis("ValueError: no such optimizer", kernel) is None
    assert diagnosis("ValueError: loss is nan", kernel).id == "loss-not-finite"


def test_the_kernels_word_of_a_gpu_explains_what_cuda_could_not():
    error = "RuntimeError: CUDA error: unspecified launch failure"
    lost = as_logged("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.")
    other = as_logged("Out of memory: Killed process 4242 (firefox)")
    assert diagnosis(error).id == diagnosis(error, other).id == "cuda-crashed"
    assert diagnosis(error, other + lost).id == "gpu-fell-off"
    assert diagnosis("ValueError: odd", lost) is None


def test_an_earlier_launchs_kernel_lines_do_not_count():
    log = (
        as_logged("Out of memory: Killed process 4242 (python3)")
        + "hearth: 2026-11-20T07:11:10Z all nodes are ready; starting torchrun (generation 1)\n"
    )
    assert diagnosis("rank 1 was killed by signal 9 (SIGKILL)", log).id == "killed"


@pytest.mark.parametrize("more", ["", " (4 launches in a row ended before another checkpoint)"])
def test_an_abort_without_a_reason_is_a_crash(more):
    kernel = as_logged("EXT4-fs (sda1): Remounting filesystem read-only")
    assert diagnosis(f"rank 1 was killed by signal 6 (SIGABRT){more}").id == "crashed"
    assert diagnosis("rank 1 was killed by signal 6 (SIGABRT)", kernel).id == "read-only-disk"


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        ("torch.AcceleratorError: CUDA error: out of memory", "gpu-out-of-memory"),
        ("RuntimeError: CUDA error: out of memory", "gpu-out-of-memory"),
        ("RuntimeError: CUDA driver error: out of memory", "gpu-out-of-memory"),
        (
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled cuda "
            "error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\n"
            "ncclUnhandledCudaError: Call to CUDA function failed.\n"
            "Last error:\nCuda failure 2 'out of memory'",
            "gpu-out-of-memory",
        ),
        ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", "gpu-busy"),
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "gpu-busy"),
        (
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has "
            "unsupported display driver / cuda driver combination",
            "driver-mismatch",
        ),
        (
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward "
            "compatibility was attempted on non supported HW",
            "driver-mismatch",
        ),
        (
            "torch.distributed.DistNetworkError: The client socket has failed to connect to any "
            "network address of (192.0.2.7, 29500).",
            "rendezvous-timeout",
        ),
    ],
)
def test_what_a_gpu_and_torch_say_in_several_ways_is_known(error, wanted):
    assert diagnosis(error).id == wanted


@pytest.mark.parametrize(
    ("last", "wanted"),
    [
        ("", "nccl-system-error"),
        (
            "socketStartConnect: Connect to 192.0.2.7<42639> failed : Software caused connection "
            "abort",
            "nccl-system-error",
        ),
        ("Cuda failure 2 'out of memory'", "gpu-out-of-memory"),
        (
            "socketStartConnect: Connect to 192.0.2.7<52822> failed : No route to host",
            "wrong-interface",
        ),
        ("Bootstrap : no socket interface found", "interface-not-found"),
        ("socketProgress: Connection closed by remote peer desk<51159>", "peer-lost"),
        (
            "Error while creating shared memory segment /dev/shm/nccl-WU88OE (size 9637888)",
            "shared-memory-full",
        ),
    ],
)
def test_nccl_says_what_failed_in_the_system_before_that_something_did(last, wanted):
    error = (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled "
        "system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5\n"
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or "
        f"device error.\nLast error:\n{last}"
    )
    assert [entry.id for entry in entries() if entry.fits(error)] == [wanted]


def test_an_unknown_failure_says_so():
    assert diagnosis("ValueError: the moon is not round") is None
    (line,) = explained(None)
    assert line.startswith("cause: ")


# -- the page --------------------------------------------------------------------------------------


def test_the_page_is_the_catalogue():
    page = ROOT / "docs" / "troubleshooting.md"
    hint = "make it anew: python -m tests.support.troubleshooting > docs/troubleshooting.md"
    assert page.read_text() == markdown(), hint


def test_the_page_has_every_cause_cure_and_source():
    page = markdown()
    for entry in entries():
        assert f"\n### {entry.id}\n" in page
        assert entry.cause in page and entry.cure in page
        for seen in entry.seen:
            assert seen.text in page and seen.source.partition("::")[0] in page
