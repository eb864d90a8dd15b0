"""`scripts/lab` for tests: machines for as long as a test needs them, and what is done on them.

HEARTH_LAB names the lab, so that tests can run beside one that is up.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml

from hearth_lab import machine, plan
from support.computer import LAB, snapshot
from support.house import ROOT

STATE = Path("/run", LAB)
_NEEDED = ("systemd-nspawn", "mmdebstrap", "dnsmasq", "nc")
_DOWN_SECONDS = 60


def lab(*arguments: str, timeout: float = 60, status: int | None = 0) -> str:
    """Call scripts/lab; return what it printed."""
    done = subprocess.run(
        [ROOT / "scripts" / "lab", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    print(f"$ lab {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    if status is not None:
        assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def on(node: str, command: str, timeout: float = 30) -> str:
    """Run a command as the user who logs in on a machine; return what it printed."""
    return lab("ssh", node, command, timeout=timeout).strip()


def inside(node: str, command: str, timeout: float = 30, given: bytes | None = None) -> str:
    """Run a command as root on a machine, without its network; return what it printed."""
    its = next(each for each in plan.nodes() if each.name == node)
    done = subprocess.run(
        [*machine.within(its), "/bin/sh", "-c", command],
        input=given,
        capture_output=True,
        timeout=timeout,
    )
    said = (done.stdout + done.stderr).decode(errors="replace")
    print(f"{node}# {command}\n{said}")
    return said.strip()


def row(node: str) -> list[str]:
    """Return a machine's line of `lab status`: name, power, address, card and so on."""
    return next(line.split() for line in lab("status").splitlines() if line.startswith(node))


def answers(node: str) -> bool:
    """Return whether a machine's SSH port answers at the address that the router gives it."""
    return row(node)[-1] == "answers"


def computer_before() -> dict[str, list[str]]:
    """Return what the computer has without the lab; skip the test where there can be none.

    In CI it fails instead.
    """
    reason = ""
    if os.geteuid() != 0:
        reason = "the lab needs root"
    elif missing := [command for command in _NEEDED if not shutil.which(command)]:
        reason = f"the lab needs {', '.join(missing)}; ./scripts/test as root installs them"
    elif STATE.exists():
        reason = "a lab is up already; end it with scripts/lab down"
    if reason and os.environ.get("CI") == "true":
        pytest.fail(f"{reason}: in CI the lab's tests must run")
    elif reason:
        pytest.skip(f"THE LAB IS NOT TESTED: {reason}")
    return snapshot()


@contextmanager
def machines(count: int = 3) -> Iterator[float]:
    """Have a lab of so many machines, and the seconds that `up` took with the image at hand.

    The image is built first where it is not there yet. The lab is taken down in any case.
    """
    try:
        lab("up", "--nodes", "1", timeout=900)
        lab("down")
        began = time.monotonic()
        lab("up", "--nodes", str(count), timeout=100)
        yield time.monotonic() - began
    finally:
        lab("down", timeout=_DOWN_SECONDS)


def inventory(folder: Path, hosts: dict[str, dict[str, object]]) -> Path:
    """Write an inventory of lab machines, with these variables each; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "inventory/lab/group_vars", folder / "group_vars", dirs_exist_ok=True)
    (folder / "hosts.yml").write_text(
        yaml.safe_dump({"cluster": {"hosts": hosts}}, sort_keys=False)
    )
    return folder


class Play:
    """A playbook that runs from the repository's root, in a session of its own."""

    def __init__(self, inventory: Path, playbook: str | Path, *arguments: object) -> None:
        self._process = subprocess.Popen(
            ["ansible-playbook", "-i", inventory, *map(str, (playbook, *arguments))],
            cwd=ROOT,
            env=os.environ
            | {
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "LC_ALL": "C.UTF-8",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _everybody(self) -> list[psutil.Process]:
        """Return the play and its workers, which have sessions of their own."""
        try:
            play = psutil.Process(self._process.pid)
            return [play, *play.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def freeze(self) -> None:
        """Stop the play where it is."""
        for process in self._everybody():
            process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a play go on that was stopped."""
        for process in self._everybody():
            process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the play as if its computer had died; no harm if it has ended."""
        for process in self._everybody():
            process.kill()
        self._process.wait(10)

    def end(self, timeout: float = 110) -> tuple[int, str]:
        """Return the exit status and what the screen showed, once the play has ended."""
        try:
            screen, _ = self._process.communicate(timeout=timeout)
        finally:
            self.kill()
        print(screen)
        return self._process.returncode, screen
