"""Fixtures that several rooms use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.programs import stand_in


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Return a function that puts a shell script before the real program of a name."""
    folder = tmp_path / "programs"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return lambda name, script: stand_in(folder / name, script)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts a program in Python; each is killed in the end by its id."""
    started = []

    def act(code: str, *words: object, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, words)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield act
    for process in started:
        with process:
            process.kill()
