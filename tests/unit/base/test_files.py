from concurrent.futures import ThreadPoolExecutor

import pytest

from hearth.base.files import alone, taken


def test_one_is_alone_in_a_folder_and_the_next_waits(tmp_path):
    def second():
        with alone(tmp_path):
            (tmp_path / "second").touch()

    with ThreadPoolExecutor(1) as pool:
        with alone(tmp_path):
            assert taken(tmp_path)
            waiting = pool.submit(second)
            with pytest.raises(TimeoutError):
                waiting.result(0.3)
            assert not (tmp_path / "second").exists()
        waiting.result(5)
    assert (tmp_path / "second").exists()
    assert not taken(tmp_path)


def test_who_was_killed_is_no_longer_there(tmp_path, start):
    program = (
        "import sys, time; from pathlib import Path; from hearth.base.files import alone\n"
        "with alone(Path(sys.argv[1])):\n    print('in', flush=True); time.sleep(60)\n"
    )
    other = start(program, tmp_path)
    assert other.stdout.readline() == "in\n"
    assert taken(tmp_path)
    other.kill()
    other.wait(5)
    assert not taken(tmp_path)
