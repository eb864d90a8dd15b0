"""Hearth's module_utils where Ansible would put them, for tests of what runs on a node."""

from __future__ import annotations

from pathlib import Path

import ansible.module_utils

ansible.module_utils.__path__.append(
    str(Path(__file__).resolve().parents[2] / "plugins" / "module_utils")
)
