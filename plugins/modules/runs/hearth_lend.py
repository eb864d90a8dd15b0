#!/usr/bin/python
"""Ansible module: give a node the word of a person on lending, and say who has the machine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_lend
short_description: Keep a node for its owner, lend it to runs, or say who has it
description:
  - Calls C(python -m hearth.supervisor.lend) with the training code of the workspace, as
    C(hearth-lend) there does.
  - What is wrong comes back as RV(findings) and does not fail the task, so that the findings of all
    nodes can be shown together (see M(hearth_verdict)).
options:
  word:
    description:
      - V(off) keeps the node from runs, V(on) lends it whatever its terms say, and V(auto) leaves
        it to them. V(status) changes nothing.
    type: str
    choices: [status, "off", "on", auto]
    default: status
  end:
    description: When V(off) or V(on) ends, in the node's local time; never if empty.
    type: str
    default: ""
extends_documentation_fragment: hearth_place
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import absolute, environment, hearth
from ansible.module_utils.hearth_node.runs.command import PLACE_OPTIONS, lacks_code


def main() -> None:
    """Run the module; return `findings` and, as `facts`, the word and the run that has the node.

    In check mode nothing is written, and the facts are those that would be.
    """
    module = AnsibleModule(
        argument_spec={
            **PLACE_OPTIONS,
            "word": {
                "type": "str",
                "choices": ["status", "off", "on", "auto"],
                "default": "status",
            },
            "end": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given, workspace = module.params, absolute(module.params["workspace"])
    if lacks := lacks_code(workspace):
        module.exit_json(changed=False, findings=lacks, facts={})
    words = ["hearth.supervisor.lend", given["word"], "--json", "--workspace", workspace]
    if given["end"]:
        words += ["--until", given["end"]]
    if module.check_mode:
        words.append("--dry-run")
    variables = environment(workspace, given["node"], None, {})
    report = hearth(module, absolute(given["python"]), words, variables)
    module.exit_json(
        changed=bool(report.facts.get("changed")), findings=report.findings, facts=report.facts
    )


if __name__ == "__main__":
    main()
