"""Options of the modules that run Hearth's code on a node: where it is."""

from __future__ import annotations


class ModuleDocFragment:
    """The options, which C(PLACE_OPTIONS) in module_utils declares."""

    DOCUMENTATION = r"""
options:
  workspace:
    description: Workspace of the node. May start with C(~).
    type: str
    required: true
  python:
    description: Python of the environment that trains. May start with C(~).
    type: str
    required: true
  node:
    description: Name of the node.
    type: str
    required: true
"""
