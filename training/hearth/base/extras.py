"""Packages that a node fetches with pip when something needs them: sets aside, and wheels.

Each set has a lock with hashes in `training/extras`, without what every node has already. A set has
a folder of its own, so that the environment that trains stays as it was provisioned.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from hearth.base.errors import SupplyError
from hearth.base.files import replaced_folder
from hearth.base.hub import scrub
from hearth.base.locks import locked
from hearth.base.places import user_cache

LOCKS = Path(__file__).resolve().parents[2] / "extras"
"""Folder of the locks, beside the training code."""

Install = Callable[[Path, Path, str], None]
"""Lays the packages of a lock into a folder, whole or not at all; the text names who needs them."""

_TIMEOUT = 1800.0


def extra_folder(name: str) -> Path:
    """Return the folder of the set `name` for this Python, whether it is installed or not."""
    digest = hashlib.sha256((LOCKS / f"{name}.lock").read_bytes()).hexdigest()[:12]
    return user_cache() / "extras" / f"{_versions_of(name)}{digest}"


def _versions_of(name: str) -> str:
    """Return the first part of the folder names of the set `name` for this Python and processor.

    Nodes that share a home may have several of either.
    """
    return f"{name}-{platform.machine()}-{platform.python_version()}-"


def packages_of(name: str) -> list[str]:
    """Return the names of the packages of the set `name`."""
    return re.findall(r"^([\w.-]+)==", (LOCKS / f"{name}.lock").read_text(), re.MULTILINE)


def ensure_extra(
    name: str,
    what: str,
    say: Callable[[str], None] = print,
    install: Install | None = None,
) -> Path:
    """Return the folder of the set `name`, installed if this is the first time.

    `what` names in messages the setting that needs it. `install` installs the set instead of pip.

    Raises `SupplyError` if it cannot be installed; nothing half-installed stays.
    """
    folder = extra_folder(name)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    waiting = f"{what}: another process is installing its packages"
    with locked(folder.parent / f".{name}.lock", say, waiting):
        if not folder.is_dir():
            say(f"{what}: installing its packages into {folder} (once)")
            (install or _install)(LOCKS / f"{name}.lock", folder, what)
            for old in folder.parent.glob(f"{_versions_of(name)}*"):
                if old != folder:
                    shutil.rmtree(old, ignore_errors=True)
    return folder


def use_extra(folder: Path) -> None:
    """Let this process import the packages in `folder`, after those of its environment."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _install(lock: Path, folder: Path, what: str) -> None:
    """Install the packages of a lock into `folder`, whole or not at all."""
    try:
        with replaced_folder(folder) as new:
            words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input"]
            words += ["--disable-pip-version-check", "--no-deps", "--require-hashes"]
            # A few are published as source only; the environment's setuptools builds those.
            words += ["--no-build-isolation", "--no-compile", "--target", str(new)]
            done = subprocess.run(
                [*words, "--requirement", str(lock)],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT,
                check=False,
            )
            if done.returncode:
                raise SupplyError(f"{what}: {_why(done.stderr)}")
    except OSError as error:
        raise SupplyError(
            f"{what}: its packages cannot be installed into {folder} ({error.strerror or error}); "
            "free some space there, or name another folder by XDG_CACHE_HOME"
        ) from error
    except subprocess.TimeoutExpired:
        raise SupplyError(
            f"{what}: its packages were not installed within {_TIMEOUT / 60:g} minutes; check this "
            "node's connection to the package index"
        ) from None


def _why(errors: str) -> str:
    """Return why pip failed: its last error, and the cure."""
    lines = [line for line in errors.splitlines() if line.startswith("ERROR:")]
    last = (lines or errors.strip().splitlines() or ["pip said nothing"])[-1]
    return (
        f"its packages cannot be installed on this node: {last.removeprefix('ERROR: ')}; connect "
        "it to a package index, or leave the setting out"
    )


def download_wheels(requirements: str, folder: Path, *options: str) -> list[Path]:
    """Download the wheels that `requirements` pins, with hashes, into `folder`; return their paths.

    `options` are further ones of `pip download`.

    Raises `SupplyError` with pip's reason.
    """
    file = folder / "requirements.txt"
    file.write_text(requirements)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:"]
    command += [*options, "--requirement", str(file), "--dest", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode or not wheels:
        errors = [
            line for line in result.stderr.splitlines() if "ERROR" in line or "No module" in line
        ]
        raise SupplyError(
            scrub(errors[-1].strip()) if errors else f"pip exited with {result.returncode}"
        )
    return wheels
