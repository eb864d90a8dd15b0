"""The process of a finished run that takes scores, copies and pushes its result (`hearth.after`).

One node does it, the first in rank order that is there, while the others end. The run is under way
until it has ended, so that no other run takes the node's GPU from it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Set
from contextlib import suppress
from pathlib import Path

from hearth.base.aside import environment_aside, forget, start_aside
from hearth.base.places import python_path
from hearth.notify.event import speaker
from hearth.supervisor.spec import Spec

_CODE = Path(__file__).resolve().parents[2]

_POLL = 0.25

_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for a process that has to make way."""


async def do_afterwards(
    spec: Spec, absent: Set[str], wanted_elsewhere: Callable[[], str], say: Callable[[str], None]
) -> None:
    """Do the parts that follow a finished run of `spec`, if they are for this node to do.

    `absent` are the nodes that are not there. It ends early when `wanted_elsewhere` gives a reason.
    Its output goes to the run's log; it records itself which parts are done.
    """
    if not spec.afterwards or speaker(spec.nodes, absent) != spec.node:
        return
    say("the training has finished; now what was asked for after it")
    process = _start(spec)
    try:
        while process.poll() is None:
            if why := wanted_elsewhere():
                say(f"{why}: ending what follows the training; the trained weights are complete")
                await _end(process)
                break
            await asyncio.sleep(_POLL)
    finally:
        if process.poll() is None:
            await _end(process)
        process.wait()
        forget(process)


def _start(spec: Spec) -> subprocess.Popen[bytes]:
    """Start the process; its spec is on its standard input, its output in the run's log."""
    own = {"HEARTH_WORKSPACE": str(spec.workspace), "HEARTH_NODE": spec.node}
    own |= {"HEARTH_MODELS": spec.models} if spec.models else {}
    own |= {"HF_TOKEN": spec.push_token} if spec.push_token else {}
    given = environment_aside("SLURM_") | own
    files = ["--run-file", str(spec.results / "run.yml"), "--spec", "/dev/stdin"]
    with spec.log.open("ab") as log:
        process = start_aside(
            [spec.python, "-m", "hearth.after", "finish", *files],
            cwd="/",
            env=given | {"PYTHONPATH": python_path(_CODE, given), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,  # so that its own processes end with it
        )
    assert process.stdin
    with suppress(OSError):  # it has ended at once, and said why
        process.stdin.write(json.dumps({"hearth": spec.hearth}).encode())
        process.stdin.close()
    return process


async def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and those that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        for _ in range(round(_GRACE / _POLL)):
            if process.poll() is not None:
                break
            await asyncio.sleep(_POLL)
