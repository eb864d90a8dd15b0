"""Wheels from the package registry, fetched by pip, which checks their hashes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hearth.base.errors import SupplyError
from hearth.base.hub import scrub


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
