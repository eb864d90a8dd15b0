"""Hearth's module_utils where Ansible would put them, for tests of what runs on a node."""

from __future__ import annotations

from pathlib import Path

# First, for Ansible replaces sys.intern when it is imported, and then torch refuses to be.
import ansible.module_utils

ansible.module_utils.__path__.append(
    str(Path(__file__).resolve().parents[2] / "plugins" / "module_utils")
)
