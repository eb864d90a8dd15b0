from concurrent.futures import ThreadPoolExecutor

import pytest

from hearth.base.files import alone, taken

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
