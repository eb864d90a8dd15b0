"""Options of the modules that run one of Hearth's own commands on a node."""

from __future__ import annotations


class ModuleDocFragment:
    """The options, which C(COMMAND_OPTIONS) in module_utils declares."""

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
  models:
    description: Model cache; empty is C(models/) in the workspace.
    type: str
    default: ""
  threads:
    description: CPU threads of a rank; 0 leaves it to torch.
    type: int
    default: 0
  variables:
    description: Further environment variables of the command, by name.
    type: dict
    default: {}
  run_file:
    description: Text of the C(run.yml), for commands that need it. No copy stays on the node.
    type: str
    default: ""
  spec:
    description: The rest that the command needs to know, if it takes C(--spec).
    type: dict
  secret:
    description: Secret that the nodes of this call share. It is added to O(spec).
    type: str
  hub_token:
    description: Token for gated models. It reaches the command in its environment only.
    type: str
"""
