#!/usr/bin/python
"""Ansible module: the current load of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_health
short_description: Load, memory, network rate and NVIDIA GPUs of a node, as they are now
description:
  - Takes a second, since a rate needs two looks. Changes nothing; needs neither the environment nor
    the training code of the node.
options:
  address:
    description: The cluster address of the node; the rate is that of the interface that carries it.
    type: str
    required: true
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.doctor.health import look


def main() -> None:
    """Run the module; return the `health` as `look` finds it."""
    module = AnsibleModule(
        argument_spec={"address": {"type": "str", "required": True}}, supports_check_mode=True
    )
    module.exit_json(changed=False, health=look(module.params["address"]))


if __name__ == "__main__":
    main()
