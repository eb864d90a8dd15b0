"""Vars plugin that sets nothing: it lets words after -e have the names of two keywords.

`until` and `port` are keywords of a task and of a play. Ansible never takes a variable for a
keyword, and warns of its name each time all the same. It imports vars plugins with the inventory,
before it reads the first playbook; callbacks would come too late.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.vars import BaseVarsPlugin
from ansible.vars import reserved

DOCUMENTATION = r"""
name: hearth_words
short_description: Names of words that are keywords of Ansible's, too
description:
  - Sets no variables.
"""

reserved._RESERVED_NAMES = reserved._RESERVED_NAMES - {"port", "until"}


class VarsModule(BaseVarsPlugin):
    """Is never asked for variables."""

    REQUIRES_ENABLED = True

    def get_vars(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return no variables."""
        return {}
