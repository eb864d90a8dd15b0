"""A lab that tests left up when they were killed, and the tests after them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.house import ROOT
from support.lab import need_the_lab
from support.waiting import HANG, until

pytestmark = pytest.mark.lab

NAME = "-".join(filter(None, [os.environ.get("HEARTH_LAB"), "left"]))
STATE = Path("/run", f"hearth-lab-{NAME}")
HAVE = """
from support.lab import machines
with machines(1):
    print("has it", flush=True)
    input()
"""


def begin(**changes: str) -> subprocess.Popen[str]:
    """Begin tests that want a lab of one machine, and have it until they are told to end."""
    environment = {name: said for name, said in os.environ.items() if name != "CI"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    return subprocess.Popen(
        [sys.executable, "-c", HAVE],
        env=environment
        | {"HEARTH_LAB": NAME, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'scripts'}"}
        | changes,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    """Tell tests to end; return what they said."""
    return process.communicate("\n", timeout=HANG)[0]


@pytest.fixture
def left() -> Iterator[None]:
    """A lab of tests that were killed while they had it."""
    need_the_lab()
    killed = begin()
    try:
        until(lambda: "has it" in killed.stdout.readline())
        killed.kill()
        killed.communicate(timeout=HANG)
        assert STATE.exists()
        yield
    finally:
        killed.kill()
        subprocess.run(
            [ROOT / "scripts" / "lab", "down"],
            env=os.environ | {"HEARTH_LAB": NAME},
            check=True,
            timeout=HANG,
        )


@pytest.mark.parametrize("theirs", [{"CI": "true"}, {"PYTEST_XDIST_WORKER": "gw0"}], ids=str)
def test_what_killed_tests_left_does_not_keep_others_from_the_lab(left, theirs):
    assert "has it" in end(begin(**theirs))
    assert not STATE.exists()


def test_a_lab_of_a_person_stays(left):
    assert "a lab is up already" in end(begin())
    assert STATE.exists()


def test_tests_beside_others_do_not_take_their_lab(left):
    first = begin(CI="true")
    try:
        until(lambda: "has it" in first.stdout.readline())
        assert "other tests that are under way have the lab" in end(begin(CI="true"))
        assert STATE.exists()
    finally:
        end(first)
