"""What all tests need: Hearth's module_utils where Ansible would put them, and who runs what."""

from __future__ import annotations

from pathlib import Path

import ansible.module_utils
import pytest

# Before a test imports more of Ansible, which replaces sys.intern: torch would then refuse to be.
import torch._dynamo  # noqa: F401

ansible.module_utils.__path__.append(
    str(Path(__file__).resolve().parents[1] / "plugins" / "module_utils")
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one of xdist's workers have the lab, of which there is one; files stay whole."""
    for item in items:
        group = "lab" if item.get_closest_marker("lab") else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
