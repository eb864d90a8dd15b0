"""A disk that takes no writes: the writes skipped or delayed, and the errors."""

from __future__ import annotations

import errno
import os

import pytest
from safetensors import SafetensorError
from support.ranks import python

from hearth.base.errors import CheckpointError
from hearth.record.history import RecordFile
from hearth.record.own_disk import WRITES, OwnDisk, number_of, reason

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def failing(spares: bool, error: Exception = FULL) -> OwnDisk:
    disk = OwnDisk(spares=spares)
    with disk.spared("the checkpoint"):
        raise error
    return disk


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_what_one_disk_does_not_take_is_no_error_while_another_nodes_does(number):
    disk = failing(spares=True, error=OSError(number, os.strerror(number)))
    assert disk.fails("the checkpoint") and not disk.fails("the record")
    assert reason(disk.state) == os.strerror(number)
    disk.agree([disk.state, WRITES, 0])
    with pytest.raises(OSError, match=os.strerror(number)):
        disk.agree([disk.state, disk.state, 0])


@pytest.mark.parametrize(
    ("said", "number"), [("I/O error: No space left on device", errno.ENOSPC), ("?", errno.EIO)]
)
def test_an_error_of_safetensors_is_known_by_the_systems_text_in_it(said, number):
    assert number_of(SafetensorError(said)) == number
    caused = CheckpointError("not written")
    caused.__cause__ = SafetensorError(said)
    assert number_of(caused) == number
    assert number_of(CheckpointError("of another model")) is None
    assert number_of(ValueError(said)) is None


def test_it_is_an_error_where_nobody_else_writes():
    with pytest.raises(OSError, match="No space"):
        failing(spares=False)


@pytest.mark.parametrize("error", [ConnectionResetError("peer"), TimeoutError("store")])
def test_an_error_of_the_network_is_none_of_the_disk(error):
    with pytest.raises(type(error)):
        failing(spares=True, error=error)


def test_a_disk_that_takes_it_again_has_no_fault():
    disk = failing(spares=True)
    with disk.spared("the checkpoint"):
        pass
    assert (disk.state, reason(disk.state)) == (WRITES, "")


def test_a_record_that_a_full_disk_does_not_take_waits_whole(tmp_path):
    """In a process of its own, whose files may not grow: an error as that of a full disk."""
    script = """if True:
        import resource, signal
        from pathlib import Path
        from hearth.record.history import RecordFile
        record, refused = RecordFile(Path("metrics.jsonl")), 0
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        for number in range(100):
            try:
                record.add(f"line {number:03} of the record\\n")
            except OSError:
                refused += 1
            assert Path("metrics.jsonl").read_bytes()[-1:] == b"\\n"
        assert refused > 50 and record.text().count("line") == 100
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        record.add("the last\\n")
        record.close()
    """
    done = python(tmp_path, "-c", script)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert lines == [*(f"line {number:03} of the record" for number in range(100)), "the last"]


def test_a_record_can_be_replaced(tmp_path):
    record = RecordFile(tmp_path / "metrics.jsonl")
    record.add("old\n")
    record.replace("new\n")
    record.add("newer\n")
    record.close()
    assert (tmp_path / "metrics.jsonl").read_text() == "new\nnewer\n"


def test_output_to_a_full_disk_ends_nothing(tmp_path):
    script = """if True:
        import os
        from hearth.base.entry import spare_output
        full = os.open("/dev/full", os.O_WRONLY)
        kept = os.dup(1)
        os.dup2(full, 1)
        spare_output()
        print("dropped", flush=True)
        os.dup2(kept, 1)
        print("written")
    """
    done = python(tmp_path, "-c", script)
    assert (done.returncode, done.stdout) == (0, "written\n"), done.stderr
