"""Hearth's module_utils where Ansible would put them, for tests of what runs on a node."""

from __future__ import annotations

from pathlib import Path

import ansible.module_utils

# Before a test imports more of Ansible, which replaces sys.intern: torch would then refuse to be.
import torch._dynamo  # noqa: F401

ansible.module_utils.__path__.append(
    str(Path(__file__).resolve().parents[1] / "plugins" / "module_utils")
)
