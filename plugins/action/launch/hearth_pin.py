"""Action plugin: pin the model revision that the nodes have fetched in the run's file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.config import pinned, run_of, run_text

DOCUMENTATION = r"""
module: hearth_pin
short_description: Record the Hub's commit of the model in a run's file
description:
  - The name of a model on the Hub means its newest revision, which may be another one when the run
    goes on. Works on the controller.
options:
  file:
    description: Text of the C(run.yml).
    type: str
    required: true
  revisions:
    description: The commit that each node has, none where its model is not from the Hub.
    type: list
    elements: raw
    required: true
"""

RETURN = r"""
file:
  description: Text of the C(run.yml), with the revision where all nodes have the same.
  type: str
  returned: always
"""


def common(revisions: Sequence[str | None]) -> str | None:
    """Return the revision that all nodes have, or None.

    Two revisions can have the same files, and only the files matter to the ranks.
    """
    return revisions[0] if len(set(revisions)) == 1 else None


class ActionModule(ActionBase):
    """Runs on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the text of the file."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(
            {
                "file": {"type": "str", "required": True},
                "revisions": {"type": "list", "elements": "raw", "required": True},
            }
        )
        run = run_of(given["file"], "the run")
        return result | {"file": run_text(pinned(run, common(given["revisions"])))}
