"""The catalogue of failures: every real text leads to its own entry, and Hearth's words to none."""

from __future__ import annotations

import ast
import os
import re
import time
from errno import EDQUOT, EFBIG, EIO, ENODEV, ENOSPC, ENOTCONN, ENXIO, EROFS, ESTALE

import pytest
from support.ranks import python
from support.repository import ROOT

from hearth.diagnose import killed_by, last_error
from hearth.diagnose.__main__ import main
from hearth.diagnose.catalogue import KnownError, diagnosis, entries, explained, is_local
from hearth.diagnose.listing import sample_lines

SEEN = [(entry, seen) for entry in entries() for seen in entry.seen]
IDS = [f"{entry.id}-{entry.seen.index(seen)}" for entry, seen in SEEN]


def as_logged(kernel: str) -> str:
    return f"hearth: 2026-11-20T07:10:10Z kernel: {kernel}\n" if kernel else ""


@pytest.mark.parametrize(("entry", "seen"), SEEN, ids=IDS)
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
        {"seen": [{"text": "x", "source": "a colleague said so"}]},
        {"cures": "x"},
    ],
)
def test_an_entry_that_is_not_whole_is_refused(broken):
    seen = [{"text": "x", "source": "https://example.org/1"}]
    whole = {"id": "new", "match": ["x"], "cause": "x", "cure": "x", "seen": seen}
    assert KnownError.model_validate(whole)
    with pytest.raises(ValueError):
        KnownError.model_validate(whole | broken)


def cpu_seconds(work) -> float:
    """Return the CPU time of a call, the shortest of three."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def repeated_beginnings(pattern: str) -> list[str]:
    """Return texts of 20,000 characters that begin a match again and again and complete none."""
    literals = re.findall(r"[\w ./:'-]+", re.sub(r"\\[a-zA-Z]|\\", " ", pattern))
    words = {word for each in literals for word in (each, f"{each.strip()}x", f"{each} ")}
    return [(word * 20_000)[:20_000] for word in {*words, "a ", "1", "/", "(", ": "}]


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.id)
def test_a_long_line_is_searched_in_about_the_time_of_a_loop_over_it(entry):
    loop = cpu_seconds(lambda: [None for _ in range(20_000)])
    slow = [
        (pattern.pattern, text[:40])
        for pattern in (*entry.match, *entry.unless)
        for text in repeated_beginnings(pattern.pattern)
        if cpu_seconds(lambda p=pattern, t=text: p.search(t)) > 15 * loop
    ]
    assert slow == []


def own_messages() -> set[str]:
    """Return Hearth's error messages, with a plain word in place of each placeholder."""
    found = set()
    rooms = (ROOT / "training" / "hearth", ROOT / "controller")
    for path in (each for room in rooms for each in room.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error"):
                texts = [w for w in node.args if isinstance(w, ast.Constant | ast.JoinedStr)]
                words = (ast.unparse(text).lstrip("f").strip("'\"") for text in texts)
                found |= {re.sub(r"\{[^{}]*\}", "it", each) for each in words}
    return found


def test_what_hearth_says_itself_is_in_no_entry():
    messages = own_messages()
    assert len(messages) > 80
    assert {text: found.id for text in messages if (found := diagnosis(text))} == {}


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
    "too-many-threads": (
        "import resource, threading\n"
        "threading.stack_size(1 << 30)\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (1 << 29, 1 << 29))\n"
        "threading.Thread(target=print).start()"
    ),
    "port-taken": (
        "import socket\n"
        "first = socket.create_server(('127.0.0.1', 0))\n"
        "socket.socket().bind(first.getsockname())"
    ),
}


@pytest.mark.parametrize("wanted", PROVOKED)
def test_a_failure_that_is_provoked_is_named(tmp_path, wanted):
    done = python(tmp_path, "-c", PROVOKED[wanted])
    assert done.returncode == 1
    assert diagnosis(last_error(done.stderr).message).id == wanted


CUDA_TOLD = (
    "an illegal memory access was encountered",
    "unspecified launch failure",
    "uncorrectable ECC error encountered",
    "misaligned address",
    "hardware stack error",
    "the launch timed out and was terminated",
    "CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
    "out of memory",
    "no CUDA-capable device is detected",
)
ERRORS_OF_A_DISK = (ENOSPC, EDQUOT, EROFS, EIO, EFBIG, ESTALE, ENOTCONN, ENXIO, ENODEV)


@pytest.mark.parametrize(
    "error",
    [
        *(f"RuntimeError: CUDA error: {told}" for told in CUDA_TOLD),
        *(f"OSError: [Errno {number}] {os.strerror(number)}: '/x'" for number in ERRORS_OF_A_DISK),
        *(f"rank 1 was {killed_by(number)}" for number in (9, 7, 11, 4)),
        "rank 1 was killed by signal 6 (SIGABRT): CUDA error: misaligned address",
        "rank 1 ended with status 137 and without an error",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "MemoryError",
        "FileNotFoundError: [Errno 2] No such file or directory: '/mnt/nas/x'",
        "PermissionError: [Errno 13] Permission denied: '/mnt/nas/x'",
        "ModuleNotFoundError: No module named 'bitsandbytes'",
        "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory",
        "RuntimeError: Failed to initialize NVML: Unknown Error",
    ],
)
def test_an_error_of_one_machine_is_known_as_that(error):
    assert is_local(error)


@pytest.mark.parametrize(
    "error",
    [
        "ValueError: the row is bad",
        "KeyError: 'answer'",
        "AssertionError",
        "FloatingPointError: the loss is not finite",
        "RuntimeError: CUDA error: device-side assert triggered",
        "RuntimeError: CUDA error: invalid argument",
        "RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)",
        "SyntaxError: invalid syntax",
        "rank 1 ended with status 1 and without an error",
    ],
)
def test_an_error_that_would_come_on_every_machine_is_none_of_one(error):
    assert not is_local(error)


KILLED = "rank 1 was killed by signal 9 (SIGKILL)"
ABORTED = "rank 1 was killed by signal 6 (SIGABRT)"
CUDA = "RuntimeError: CUDA error: unspecified launch failure"
NO_MEMORY = as_logged("Out of memory: Killed process 4242 (firefox) total-vm:53312244kB")
OFF_THE_BUS = as_logged("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.")
READ_ONLY = as_logged("EXT4-fs (sda1): Remounting filesystem read-only")
ANEW = "hearth: 2026-11-20T07:11:10Z all nodes are ready; starting torchrun (generation 1)\n"


@pytest.mark.parametrize(
    ("error", "log", "wanted"),
    [
        (KILLED, NO_MEMORY, "killed-for-memory"),
        (KILLED, NO_MEMORY + ANEW, "killed"),
        (ABORTED, READ_ONLY, "read-only-disk"),
        (f"{ABORTED} (4 launches in a row ended before another checkpoint)", "", "crashed"),
        ("ValueError: no such optimizer", NO_MEMORY, None),
        ("ValueError: loss is nan", NO_MEMORY, "loss-not-finite"),
        ("ValueError: odd", OFF_THE_BUS, None),
        (CUDA, NO_MEMORY, "cuda-crashed"),
        (CUDA, NO_MEMORY + OFF_THE_BUS, "gpu-fell-off"),
    ],
)
def test_the_kernels_word_counts_where_a_rank_or_a_gpu_could_not_speak(error, log, wanted):
    found = diagnosis(error, log)
    assert (found and found.id) == wanted


def test_a_store_that_is_gone_has_lost_its_peer():
    error = "DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed"
    assert diagnosis(error).id == "peer-lost"


@pytest.mark.parametrize(
    ("last", "wanted"),
    [
        ("Cuda failure 2 'out of memory'", "gpu-out-of-memory"),
        ("Bootstrap : no socket interface found", "interface-not-found"),
        ("socketProgress: Connection closed by remote peer desk<51159>", "peer-lost"),
        ("Error while creating shared memory segment /dev/shm/nccl-WU88OE", "shared-memory-full"),
    ],
)
def test_nccl_says_what_failed_in_the_system_before_that_something_did(last, wanted):
    error = f"ncclSystemError: System call (e.g. socket, malloc) failed.\nLast error:\n{last}"
    assert [entry.id for entry in entries() if entry.fits(error)] == [wanted]


def test_an_unknown_failure_says_so():
    assert diagnosis("ValueError: the moon is not round") is None
    (line,) = explained(None)
    assert line.startswith("cause: ")


def test_the_list_has_every_entry_with_an_error_its_cause_and_its_cure(capsys):
    assert main(["--list"]) == 0
    printed = capsys.readouterr().out
    for entry in entries():
        assert f"\n### {entry.id}\n" in printed
        assert entry.cause in printed and entry.cure in printed
        assert "\n".join(sample_lines(entry.seen[0])) in printed


@pytest.mark.parametrize("word", ["rendezvous-timeout", "CLIENTS JOINED", "firewall,names"])
def test_the_list_is_narrowed_by_a_word_of_an_entry(word, capsys):
    assert main(["--list", word]) == 0
    printed = capsys.readouterr().out
    assert "### rendezvous-timeout" in printed and "### disk-full" not in printed


def test_a_word_of_no_entry_is_named(capsys):
    assert main(["--list", "the moon"]) == 1
    assert "the moon" in capsys.readouterr().out


def test_without_logs_and_list_the_command_says_what_it_takes():
    with pytest.raises(SystemExit, match="2"):
        main([])
