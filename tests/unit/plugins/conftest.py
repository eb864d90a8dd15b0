"""A node's workspace."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.hearth_node.workspace.mark import FOLDERS


@pytest.fixture
def workspace(tmp_path) -> Path:
    """Return a workspace with Hearth's code that no run has used."""
    folder = tmp_path / "ws"
    for name in (*FOLDERS, "scripts/hearth"):
        (folder / name).mkdir(parents=True)
    return folder
