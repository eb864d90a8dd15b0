"""The computer that the lab runs on: its commands, its packages and the lab's folders on it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hearth_lab.plan import LabError

REPOSITORY = Path(__file__).resolve().parents[2]
# HEARTH_LAB names a separate lab, so that several can be up on one computer.
OURS = "-".join(["hearth-lab", *filter(None, [os.environ.get("HEARTH_LAB")])])
STATE = Path("/run") / OURS
NETWORK = STATE / "net"

# Debian package by command. ssh is only needed by `lab ssh` and Ansible.
_COMMANDS = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "tc": "iproute2",
    "dnsmasq": "dnsmasq-base",
    "dpkg-deb": "dpkg",
    "nc": "netcat-openbsd",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
}


def cache() -> Path:
    """Return the folder of the machines' disks."""
    return common().with_name(OURS.removeprefix("hearth-"))


def common() -> Path:
    """Return the folder of the base files that all labs on this computer share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "/var/cache") / "hearth" / "lab"


def built(name: str, build: Callable[[Path], None]) -> Path:
    """Return the shared folder `name`, calling `build` if it does not exist.

    Folders from an older recipe are removed, unless a running lab may still use them.
    """
    target = common() / name
    if target.is_dir():
        return target
    common().mkdir(parents=True, exist_ok=True)
    with (common() / "building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():  # another lab built it meanwhile
            return target
        kind = name.rpartition("-")[0]
        stale = [] if any(Path("/run").glob("hearth-lab*")) else common().glob(f"{kind}-*")
        for folder in (*stale, *common().glob("new-*")):
            shutil.rmtree(folder)
        work = common() / f"new-{os.getpid()}"
        work.mkdir()
        try:
            build(work)
            (work / "top").rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def missing_packages() -> list[str]:
    """Return the Debian packages that the lab needs and this computer lacks."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return sorted({deb for tool, deb in _COMMANDS.items() if not shutil.which(tool, path=path)})


def check() -> None:
    """Raise LabError with all reasons why this user or computer cannot run the lab."""
    reasons = []
    if os.geteuid() != 0:
        reasons.append("It needs root, for namespaces and mounts: call it with sudo.")
    if missing := missing_packages():
        command = f"sudo apt-get install --yes --no-install-recommends {' '.join(missing)}"
        reasons.append(f"Packages are missing here; install them:  {command}")
    if reasons:
        raise LabError("The lab cannot run yet.\n" + "\n".join(reasons))


@contextmanager
def signs_of_life(what: str, say: Callable[[str], None], every: float = 15) -> Iterator[None]:
    """Say every few seconds how long `what` has taken, until it is done."""
    began, done = time.monotonic(), threading.Event()

    def repeat() -> None:
        while not done.wait(every):
            say(f"  {what}: {time.monotonic() - began:.0f} s …")

    teller = threading.Thread(target=repeat, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def run(*command: str | Path, timeout: float = 30, given: str | None = None) -> str:
    """Run a command and return its output. Raises LabError with its last output lines."""
    command_line = [str(word) for word in command]
    try:
        done = subprocess.run(
            command_line, input=given, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"`{' '.join(command_line)}` did not end within {timeout:g} s.") from None
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
        raise LabError(f"`{' '.join(command_line)}` ended with status {done.returncode}:\n{last}")
    return done.stdout


def succeeds(command: Sequence[str | Path], timeout: float = 10) -> bool:
    """Return whether a command exits with status 0 within the timeout."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


@contextmanager
def alone() -> Iterator[None]:
    """Lock the lab, so that concurrent commands do not interfere."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
