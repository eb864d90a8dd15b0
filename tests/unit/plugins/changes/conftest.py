"""The record of this machine's changes, in a folder of a test's own."""

from __future__ import annotations

import pytest
from ansible.module_utils.hearth_node.changes.record import Journal


@pytest.fixture
def open_record(tmp_path):
    """Return a function that opens the record as the next call of a module would."""
    folders = {"folder": str(tmp_path / "record"), "originals": str(tmp_path / "originals")}
    return lambda **given: Journal("power", **given, **folders)
