"""The record of changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ansible.module_utils.hearth_node.changes.record import Journal


@pytest.fixture
def open_record(tmp_path: Path) -> Callable[[], Journal]:
    """Return a function that opens the record as the next call of a module would."""
    return lambda: Journal(str(tmp_path / "record"), str(tmp_path / "originals"))
