"""Fixtures that several rooms use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.programs import stand_in


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Return a function that puts a shell script before the real program of a name."""
    folder = tmp_path / "programs"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return lambda name, script: stand_in(folder / name, script)
