#!/usr/bin/python
"""Ansible module: run one of Hearth's own commands on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_command
short_description: Run one of Hearth's own commands on this node
description:
  - Calls C(python -m COMMAND) with the training code of the workspace, whose last line of output is
    one JSON object with C(findings) and C(facts).
  - What is wrong comes back as RV(findings) and does not fail the task, so that the findings of all
    nodes can be shown together (see M(hearth_verdict)).
options:
  command:
    description: The module of the training code and its words, such as C([hearth.node, talk]).
    type: list
    elements: str
    required: true
  dry_run:
    description: >-
      Words that are added in check mode, with which the command changes nothing. Without any,
      nothing is called then.
    type: list
    elements: str
    default: []
extends_documentation_fragment: hearth_command
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.runs.command import COMMAND_OPTIONS, run_command


def main() -> None:
    """Run the module; return the `findings` (empty if nothing is wrong) and `facts`."""
    command = {"type": "list", "elements": "str", "required": True}
    dry_run = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={"command": command, "dry_run": dry_run, **COMMAND_OPTIONS},
        supports_check_mode=True,
    )
    words, check = module.params["command"], module.params["dry_run"]
    if module.check_mode and not check:
        module.exit_json(changed=False, findings=[], facts={}, skipped=True)
    report = run_command(module, words + check if module.check_mode else words)
    module.exit_json(
        changed=bool(report.facts.get("changed")), findings=report.findings, facts=report.facts
    )


if __name__ == "__main__":
    main()
