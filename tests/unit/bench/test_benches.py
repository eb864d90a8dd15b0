"""The benches as commands: each begins, and makes its section of the document of its figures."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.facts import assert_names
from support.repository import ROOT

BENCHES = sorted((ROOT / "tests" / "bench").glob("*/__main__.py"))
DOCUMENT = ROOT / "tests" / "bench" / "README.md"


def called(name: str, *options: str) -> str:
    """Return the output of a bench, called without the paths that pyproject.toml gives tests."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.bench.{name}", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_bench_explains_itself():
    assert_names(called("diagnosis", "--help"), "python -m tests.bench.diagnosis", "--again")


@pytest.mark.rotated
@pytest.mark.parametrize("bench", BENCHES, ids=lambda path: path.parent.name)
def test_each_bench_makes_its_section_of_its_figures(bench):
    name = bench.parent.name
    if bench.with_name("figures.json").exists():
        assert called(name, "--again", "--dry").strip() in DOCUMENT.read_text()
    else:
        assert_names(called(name, "--help"), f"python -m tests.bench.{name}")
