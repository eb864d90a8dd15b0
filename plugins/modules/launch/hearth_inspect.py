#!/usr/bin/python
"""Ansible module: inspect a node before a run or a transfer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_inspect
short_description: Bring the training code to this node if it is given, and inspect the node
description:
  - Nothing but the workspace is changed, and only with O(code); see M(hearth_workspace).
  - Memory and other uses of the machine; then C(python -m hearth.node) for everything that the
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
  lend:
    description: Terms of lending that the inventory sets for this node, by C(hearth.lend.terms).
    type: dict
    default: {}
  lock:
    description: The C(python_lock) of this node.
    type: str
    default: auto
  power_limit:
    description: Watts that the inventory lets each GPU draw; 0 for no limit of its own.
    type: int
    default: 0
  code:
    description: Checksums of the code, as for M(hearth_workspace). From the action plugin.
    type: dict
  source:
    description: Folder of the controller that holds the training code. For the action plugin only.
    type: path
  archive:
    description: Archive on the node with all files of O(code). From the action plugin.
    type: path
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
    texts,
)
from ansible.module_utils.hearth_node.system.memory import inspect_memory
from ansible.module_utils.hearth_node.workspace.place import place_workspace


def main() -> None:
    """Run the module; return `findings` (empty if nothing is wrong) and `facts`.

    The facts are the `memory` for ranks, other uses of the machine (`home`), absolute paths and
    options of the node (`own`), and what `hearth.node` found. There are none before the code is
    in place, when the module returns what `place_workspace` does, nor if `hearth.node` crashed.
    """
    module = AnsibleModule(
        argument_spec=COMMAND_OPTIONS
        | {
            "nproc": {"type": "int", "default": 0},
            "one_computer": {"type": "bool", "default": False},
            "lend": {"type": "dict", "default": {}},
            "lock": {"type": "str", "default": "auto"},
            "power_limit": {"type": "int", "default": 0},
            "code": {"type": "dict"},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    given, own, state = module.params, places(module.params), {"changed": False}
    if given["code"]:
        state = place_workspace(
            own["workspace"], given["code"], given["archive"], module, own["python"]
        )
        waits = state["differing"] and not (state["under_way"] or given["archive"])
        if state["findings"] or (waits and not module.check_mode):
            module.exit_json(facts={}, **state)
    words = ("threads", "nproc", "one_computer", "lend", "lock", "power_limit")
    options = {name: given[name] for name in words}
    surroundings = home(own["workspace"])
    facts = {
        "own": own | options | {"variables": texts(given["variables"])},
        "memory": inspect_memory(own["python"], used=surroundings["gpus"]),
        "home": surroundings,
    }
    bare = not given["spec"] or (module.check_mode and lacks_code(own["workspace"]))
    # Without what is free now: the cards are the same ones when a program on them ends.
    cards = [(gpu["name"], gpu["memory_mib"]) for gpu in facts["memory"]["gpus"]]
    given["spec"] = (given["spec"] or {}) | {
        **{name: given[name] for name in ("nproc", "lend")},
        "gpus": [{"name": name, "memory_mib": mib} for name, mib in cards],
    }
    report = Report([]) if bare else run_command(module, ["hearth.node", "inspect"])
    # Without an answer of this node's Python, no other command can work there either.
    facts = {} if report.findings and not report.record else facts | report.facts
    module.exit_json(**state | {"findings": report.findings, "facts": facts})


if __name__ == "__main__":
    main()
