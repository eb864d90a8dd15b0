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
    nodes can be shown together (see M(hearth_verdict)). In check mode nothing is called.
options:
  command:
    description: The module of the training code and its words, such as C([hearth.node, talk]).
    type: list
    elements: str
    required: true
extends_documentation_fragment: [hearth_place, hearth_command]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.runs.command import COMMAND_OPTIONS, run_command


def main() -> None:
    """Run the module; return the `findings` (empty if nothing is wrong) and `facts`."""
    command = {"type": "list", "elements": "str", "required": True}
    module = AnsibleModule(
        argument_spec={"command": command, **COMMAND_OPTIONS}, supports_check_mode=True
    )
    if module.check_mode:
        module.exit_json(changed=False, findings=[], facts={}, skipped=True)
    report = run_command(module, module.params["command"])
    module.exit_json(
        changed=bool(report.facts.get("changed")), findings=report.findings, facts=report.facts
    )


if __name__ == "__main__":
    main()
