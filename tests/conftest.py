"""What all tests need: Hearth's module_utils where Ansible would put them, and who runs what."""

from __future__ import annotations

from pathlib import Path

import ansible.module_utils
import pytest

# Before a test imports more of Ansible, which replaces sys.intern: torch would then refuse to be.
import torch._dynamo  # noqa: F401
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ansible.module_utils.__path__.append(
    str(Path(__file__).resolve().parents[1] / "plugins" / "module_utils")
)


class WholeFiles(LoadScopeScheduling):
    """Gives each of xdist's workers whole files, and all of the lab to one: there is one lab."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "lab" if file.startswith("tests/cluster/test_lab") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WholeFiles:
    """Return who runs what where there are several workers (scripts/test without arguments)."""
    return WholeFiles(config, log)
