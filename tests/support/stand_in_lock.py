"""A lock of two packages and an installer of Miniforge, from a stand-in of the package index."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.stand_in_index import StandInIndex, lock_line, make_wheel, stand_in_index
from support.stand_in_miniforge import INSTALLER

ALPHA, BETA = make_wheel("alpha", "1.0", size=200_000), make_wheel("beta", "2.0", size=1000)
_INSTALLER = "Miniforge3-stand-in-x86_64.sh"


@contextmanager
def index_of_the_lock() -> Iterator[StandInIndex]:
    """Serve the files of the lock for the block."""
    with stand_in_index() as server:
        server.files |= ALPHA | BETA
        server.files[_INSTALLER] = INSTALLER.encode()
        yield server


def stage_settings(folder: Path, index: StandInIndex) -> dict[str, Any]:
    """Write the lock below `folder`; return the variables that give it to the stage python."""
    locks = folder / "locks"
    locks.mkdir()
    lines = [lock_line("alpha", "1.0", *ALPHA.values()), lock_line("beta", "2.0", *BETA.values())]
    for name in ("cpu", "gpu"):
        (locks / f"{name}.lock").write_text("".join(lines))
    sha256 = hashlib.sha256(INSTALLER.encode()).hexdigest()
    installer = {"url": f"{index.url}/files/{_INSTALLER}", "sha256": sha256}
    return {
        "_python_requirements": str(locks),
        "_python_miniforge_installers": {platform.machine(): installer},
    }
