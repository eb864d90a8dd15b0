#!/usr/bin/python
"""Ansible module: inspect a node before a run or a transfer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_look
short_description: Inspect this node before a run, and change nothing
description:
  - Memory and other uses of the machine; then C(python -m hearth.prepare) for everything that the
    training code knows - address, port, other runs, copies of model and data.
  - With an empty O(spec), or in check mode without training code, only the first part.
options:
  nproc:
    description: Ranks that the inventory sets for this node; 0 is one per NVIDIA GPU.
    type: int
    default: 0
  one_computer:
    description: Whether the nodes of the inventory share one computer.
    type: bool
    default: false
extends_documentation_fragment: hearth_command
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import Report
from ansible.module_utils.hearth_node.doctor.surroundings import home
from ansible.module_utils.hearth_node.runs.command import (
    COMMAND_OPTIONS,
    lacks_code,
    places,
    run_command,
)
from ansible.module_utils.hearth_node.system.memory import look


def main() -> None:
    """Run the module; return `findings` (empty if nothing is wrong) and `facts`.

    The facts are the `memory` for ranks, other uses of the machine (`home`), absolute paths and
    options of the node (`own`), and what `hearth.prepare` found.
    """
    module = AnsibleModule(
        argument_spec=COMMAND_OPTIONS
        | {
            "nproc": {"type": "int", "default": 0},
            "one_computer": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    own = places(module.params)
    facts = {
        "own": own | {name: module.params[name] for name in ("threads", "nproc", "one_computer")},
        "memory": look(own["python"]),
        "home": home(own["workspace"]),
    }
    bare = not module.params["spec"] or (module.check_mode and lacks_code(own["workspace"]))
    module.params["spec"] |= {"nproc": module.params["nproc"], "gpus": facts["memory"]["gpus"]}
    report = Report([]) if bare else run_command(module, ["hearth.prepare", "look"])
    module.exit_json(changed=False, findings=report.findings, facts=facts | report.facts)


if __name__ == "__main__":
    main()
