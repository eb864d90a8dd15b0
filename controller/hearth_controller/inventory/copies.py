"""Validation of `copy_to` before a node gets it: Ansible shows and logs the arguments of tasks."""

from __future__ import annotations

from typing import Any

from hearth.config.copy_to import secret_in

OPTION = "share_copy_to"


def secret(value: Any) -> list[str]:
    """Return a finding, which does not show the value, if a place may hold a password or key."""
    return [reason] if (reason := secret_in(str(value))) else []
