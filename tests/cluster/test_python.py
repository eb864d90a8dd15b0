"""The stage python where the controller is itself a node: nothing is copied, nothing is removed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.local_cluster import LocalCluster
from support.stand_in_index import lock_line, make_wheel, stand_in_index
from support.waiting import HANG

pytestmark = pytest.mark.cluster
ALPHA = make_wheel("alpha", "1.0", size=100_000)


def _holds_alpha(path: Path) -> bool:
    """Return whether a file has the data of the wheel in it, packed or installed."""
    return b"x" * 100_000 in path.read_bytes()


@pytest.mark.rotated
def test_two_nodes_on_this_computer_share_one_environment_and_one_download(tmp_path):
    local = LocalCluster(tmp_path, tmp_path / "no-model", tmp_path / "no-data")
    for kind in ("cpu", "gpu"):
        (tmp_path / f"{kind}.lock").write_text(lock_line("alpha", "1.0", *ALPHA.values()))
    python = tmp_path / "environment" / "bin" / "python"
    given = {
        "_python_requirements": str(tmp_path),
        "python_lock": "cpu",
        "python_base": sys.executable,
        "hearth_python": str(python),
    }
    with stand_in_index() as index:
        index.files |= ALPHA
        local.environment |= index.variables(tmp_path / "pip")
        screen = local.play("playbooks/provision/python.yml", "-e", json.dumps(given))
        assert len(index.asked) == 1
        wheels = tmp_path / "cache" / "hearth" / "wheels"
        assert [path.name for path in wheels.glob("*.whl")] == list(ALPHA)
        holders = [path for path in tmp_path.rglob("*") if path.is_file() and _holds_alpha(path)]
        installed = next(python.parents[1].glob("lib/python*/site-packages/alpha/data.bin"))
        assert sorted(holders) == sorted([installed, *wheels.glob("*.whl")])
        done = subprocess.run([python, "-c", "import alpha"], capture_output=True, timeout=HANG)
        assert done.returncode == 0
        screen = local.play("playbooks/provision/python.yml", "-e", json.dumps(given))
    assert "desk changed=0 · laptop changed=0" in screen
