"""Failures really provoked on two machines: each is named with its node, its cause and its cure.

One rank fails as real scripts do (fixtures/scripts/fails), the other one only with an echo of it.
A week plays some failures (support/rotated.py); `python -m tests.bench.diagnosis` plays
all, and writes down how long each takes to be named.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.lab import READY, Controller, as_root, machines, of_the_first, write_down
from support.rotated import ALL, SEED, of_this_week
from support.waiting import HANG

from hearth.diagnose.catalogue import entries

pytestmark = [pytest.mark.lab, pytest.mark.rotated("failures on machines")]

SCRIPTS = Path(__file__).resolve().parents[1] / "fixtures" / "scripts"
# Seconds from the failure to the last line on the screen: what the bench holds it to.
NAMED_WITHIN = 60 if "HEARTH_RECORD" in os.environ else HANG

A_WEEK = 2
EITHER = "(tower|laptop)"  # where both ranks raise it

# Each by its name in the catalogue: the node where it began, and words of the error as it is shown.
FAILURES = {
    "module-missing": ("laptop", "No module named 'flash_attention_of_another_machine'"),
    "permission-denied": ("laptop", "'/etc/shadow'"),
    "disk-full": ("laptop", "unexpected pos"),
    "read-only-disk": ("laptop", "'/mnt/sealed/log.txt'"),
    "out-of-memory": ("laptop", "you tried to allocate 70368744177664 bytes"),
    "killed": ("laptop", "rank 1 was killed by signal 9 (SIGKILL)"),
    "crashed": ("laptop", "rank 1 was killed by signal 11 (SIGSEGV)"),
    "torch-without-cuda": ("laptop", "AssertionError"),
    "loss-not-finite": ("laptop", "loss is nan"),
    "checkpoint-does-not-fit": ("laptop", "size mismatch for weight"),
    "weights-only": ("laptop", "UnpicklingError"),
    "weights-damaged": ("laptop", "SafetensorError"),
    "hub-unreachable": ("laptop", "LocalEntryNotFoundError"),
    "interface-not-found": ("laptop", "enp99s0"),
    "loopback-address": ("tower", "connectFullMesh"),
    "rendezvous-timeout": ("laptop", "client socket has timed out"),
    "node-name-unknown": ("laptop", "addresses of (tower-pc, 29998) cannot be retrieved"),
    "collective-timeout": ("tower", "5000ms"),
    "ranks-differ": (EITHER, "DDP expects same model across all ranks"),
    "unused-parameters": (EITHER, "Expected to have finished reduction"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Iterator[Controller]:
    """A controller with the script, and two machines, one with two odd file systems."""
    folder = tmp_path_factory.mktemp("home")
    controller = Controller(folder, inventory=of_the_first(2, folder / "inventory"))
    shutil.copytree(SCRIPTS / "fails", folder / "fails")
    with machines(2):
        stages = ("playbooks/provision/preflight.yml", "playbooks/provision/workspace.yml")
        controller.play(*stages, *READY)
        as_root("laptop", "mkdir /mnt/small /mnt/sealed")
        as_root("laptop", "mount -t tmpfs -o size=1m,mode=1777 tmpfs /mnt/small")
        as_root("laptop", "mount -t tmpfs -o ro tmpfs /mnt/sealed")
        yield controller


def provoke(controller: Controller, failure: str) -> tuple[str, float]:
    """Let a run fail; return the screen in one line, and seconds from the failure to its end."""
    screen = controller.play(
        "train.yml",
        *READY,
        *("-e", f"script={controller.folder}/fails/train.py", "-e", f"script_args={failure}"),
        *("-e", f"run={failure}", "-e", "launch_return_timeout=0"),
        status=2,
    )
    ended = time.time()
    logs = "".join(path.read_text() for path in (controller.runs / failure / "logs").glob("*.log"))
    began = min(float(at) for at in re.findall(r"provoked at ([\d.]+)", logs))
    assert "Traceback" not in screen
    return " ".join(screen.split()), ended - began


@pytest.mark.parametrize(
    "failure",
    FAILURES if ALL else of_this_week(list(FAILURES), A_WEEK),
    ids=lambda it: f"{it}-{SEED}",
)
def test_a_failure_is_named_with_its_node_its_cause_and_its_cure(home, failure):
    node, error = FAILURES[failure]
    screen, seconds = provoke(home, failure)
    entry = next(each for each in entries() if each.id == failure)
    other = rf"(?!{EITHER}: )"  # what is said of another node is between none of them
    found = re.search(
        rf"(?P<node>{node}): (train\.py:\d+: )?(?P<error>({other}.)+) cause: ", screen
    )
    assert error in found["error"]
    assert f"cause: {entry.cause} cure: {entry.cure}" in screen
    assert screen.count("cause: ") == 1
    assert seconds < NAMED_WITHIN
    write_down(failure=failure, node=found["node"], seconds=seconds)


def test_a_failure_that_nobody_knows_is_shown_as_it_is(home):
    screen, seconds = provoke(home, "unheard-of")
    assert re.search(r"laptop: train\.py:\d+: RuntimeError: the moon is not round cause: ", screen)
    assert "cause: not known to Hearth; the error above is the first, as it was printed" in screen
    assert seconds < NAMED_WITHIN
