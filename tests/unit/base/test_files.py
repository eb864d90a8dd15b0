import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.repository import ROOT

from hearth.base.files import alone, level_modes, replaced_folder, taken

HOLD = """
import sys, time
from pathlib import Path
from hearth.base.files import alone
with alone(Path(sys.argv[1])):
    print("in", flush=True)
    time.sleep(60)
"""


def test_one_is_alone_in_a_folder_until_it_is_killed_and_the_next_waits(tmp_path, start):
    def enter():
        with alone(tmp_path):
            return taken(tmp_path)

    other = start(HOLD, tmp_path)
    assert other.stdout.readline() == "in\n"
    assert taken(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(enter)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        other.kill()
        assert waiting.result(5)
    assert not taken(tmp_path)


def put(final, text):
    with replaced_folder(final) as folder:
        (folder / "text").write_text(text)


def test_a_folder_that_cannot_be_put_in_place_leaves_the_earlier_one(tmp_path, monkeypatch):
    final = tmp_path / "copy"
    put(final, "first")
    real = type(final).rename

    def refuses(self, target):
        if self.name.endswith(".unfinished"):
            raise OSError(39, "Directory not empty")
        return real(self, target)

    with monkeypatch.context() as patched, pytest.raises(OSError, match="not empty"):
        patched.setattr(type(final), "rename", refuses)
        put(final, "second")
    assert (final / "text").read_text() == "first"
    put(final, "third")
    assert (final / "text").read_text() == "third"
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_a_folder_whose_replacement_was_killed_half_way_is_put_back(tmp_path):
    final = tmp_path / "copy"
    put(final, "first")
    final.rename(tmp_path / ".copy.old")
    with pytest.raises(ZeroDivisionError), replaced_folder(final):
        raise ZeroDivisionError
    assert (final / "text").read_text() == "first"


def test_no_file_stays_open_once_it_is_on_disk(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    put(tmp_path / "copy", "first")
    assert len(os.listdir("/proc/self/fd")) == before


def test_folders_of_a_model_can_still_be_entered(tmp_path):
    (tmp_path / "config.json").touch(0o644)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "template").touch(0o600)
    level_modes(tmp_path)
    assert (tmp_path / "more").stat().st_mode & 0o100
    assert (tmp_path / "more" / "template").stat().st_mode & 0o777 == 0o644


def test_an_object_is_read_from_standard_input_and_from_no_other_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program = (
        "import sys; from hearth.base.files import read_object; print(read_object(sys.argv[1]))"
    )
    said = {}
    for path in ("/dev/stdin", str(pipe)):
        done = subprocess.run(
            [sys.executable, "-c", program, path],
            input='{"node": "desk"}',
            text=True,
            capture_output=True,
            cwd=ROOT / "training",
            timeout=60,
        )
        said[path] = done.stdout.strip()
    assert said == {"/dev/stdin": "{'node': 'desk'}", str(pipe): "None"}
