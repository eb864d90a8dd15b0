"""`hearth update`: bring the checkout and its packages up to date, and say what changed."""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path

from hearth.base.errors import HearthError
from hearth.base.places import SUPERVISORS, TORCHRUN
from hearth.base.text import counted, listed
from hearth_controller.base.verdict import EXIT
from hearth_controller.cli.place import Place

_MOST = 20
"""Commits that are named at most."""

_OF_MACHINES = ("roles", "requirements", "plugins/modules", "plugins/module_utils")
"""Parts of a checkout that set up machines; a run brings the training code itself."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no flags: there are none."""


def run(given: argparse.Namespace, place: Place) -> int:
    """Update the checkout; return the exit status. Raises `HearthError` if it cannot be updated."""
    repository = place.repository
    before = _check(repository)
    pulled = _git(repository, "pull", "--ff-only")
    if pulled.returncode:
        print(f"git pull --ff-only:\n{pulled.stderr.strip()}", file=sys.stderr)
        return EXIT["broken"]
    print("\n".join(changes(repository, before)))
    if not stale(repository):
        return EXIT["good"]
    if at_work(repository):
        print(
            "A run is under way on this computer and uses .venv, which stays as it is until then: "
            "run ./scripts/setup when the run has ended."
        )
        return EXIT["degraded"]
    setup = subprocess.run(["./scripts/setup", *kind_of(repository)], cwd=repository, check=False)
    return EXIT["broken"] if setup.returncode else EXIT["good"]


def changes(repository: Path, before: str) -> list[str]:
    """Return lines on what changed since the commit `before`, and what that means for nodes."""
    since = f"{before}..HEAD"
    subjects = _git(repository, "log", "--format=%s", since).stdout.splitlines()
    if not subjects:
        return ["Hearth is up to date."]
    lines = [
        f"{counted(len(subjects), 'change')}:",
        *(f"  {subject}" for subject in subjects[:_MOST]),
    ]
    if len(subjects) > _MOST:
        lines.append(f"  and {len(subjects) - _MOST} more: git log {since}")
    if _git(repository, "diff", "--name-only", since, "--", *_OF_MACHINES).stdout:
        lines.append("What prepares machines changed: run `hearth provision` before you train.")
    else:
        lines.append("Nodes need nothing: the next run brings them the new code.")
    return [*lines, "A run in progress goes on with the code that it began with."]


def at_work(repository: Path) -> bool:
    """Return whether a supervisor or a rank on this computer uses the checkout's `.venv`."""
    python = f"{repository / '.venv' / 'bin'}/"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            program, *words = path.read_text(errors="replace").split("\0")
        except OSError:  # it has ended, or is another user's
            continue
        if program.startswith(python) and {*SUPERVISORS, TORCHRUN} & {*words}:
            return True
    return False


def _check(repository: Path) -> str:
    """Return the commit of a checkout. Raises `HearthError` if it cannot be pulled."""
    try:
        head = _git(repository, "rev-parse", "HEAD")
    except FileNotFoundError:
        raise HearthError("there is no git on this computer: sudo apt-get install git") from None
    if head.returncode or not (repository / ".git").exists():
        raise HearthError(
            f"{repository} is no git checkout; put the new version in its place, then run "
            "./scripts/setup there"
        )
    changed = _git(repository, "status", "--porcelain", "--untracked-files=no").stdout
    if changed:
        names = listed(line[3:] for line in changed.splitlines())
        raise HearthError(
            f"{repository} has changes of your own ({names}); commit them, or set them aside with "
            "`git stash`, then run `hearth update` again"
        )
    return head.stdout.strip()


def _git(repository: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run git in a repository; it may ask for a password at the terminal."""
    return subprocess.run(
        ["git", "-C", str(repository), *words], capture_output=True, text=True, check=False
    )


_STAMPS = ("installed.sha256", "package.sha256")
"""Files of `.venv` with the checksums of what was installed from, in the format of sha256sum."""


def stale(repository: Path) -> str:
    """Return a line on the files that changed since the packages were installed, or ''."""
    changed = [
        name for name, checksum in installed(repository) if checksum != _checksum(repository / name)
    ]
    if not changed:
        return ""
    names = " and ".join(changed)
    return f"hearth: .venv is older than {names}; run `hearth update` or ./scripts/setup"


def installed(repository: Path) -> list[tuple[str, str]]:
    """Return the files that were installed from, with their checksums; [] if none is recorded."""
    found = []
    for stamp in _STAMPS:
        path = repository / ".venv" / stamp
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            if not line.startswith("#"):
                checksum, name = line.split(maxsplit=1)
                found.append((name, checksum))
    return found


def kind_of(repository: Path) -> list[str]:
    """Return the flags of scripts/setup that repeat the present installation."""
    stamp = repository / ".venv" / _STAMPS[0]
    first = stamp.read_text(encoding="utf-8").partition("\n")[0] if stamp.is_file() else ""
    flags = [f"--{side}" for side in ("control", "cpu") if f" for {side} in " in first]
    tests = any(name == "requirements/test.lock" for name, _ in installed(repository))
    return [*flags, "--tests"] if tests else flags


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
