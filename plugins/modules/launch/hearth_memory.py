#!/usr/bin/python
"""Ansible module: the memory available to ranks on one node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_memory
short_description: How much memory the GPUs and the computer of a node have
description:
  - Looks, and changes nothing. Needs neither the workspace nor the environment of the node; without
    the environment nobody knows whether its torch can use the GPUs, and it counts as able to.
options:
  python:
    description: Python of the environment that trains. May start with C(~).
    type: str
    required: true
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Memory
  hearth_memory:
    python: "{{ hearth_python }}"
"""

RETURN = r"""
facts:
  description:
    - C(gpus) that the driver knows, with C(name) and C(memory_mib) of each (none where a GPU shares
      the memory of the computer), C(free_mib) of the computer, and whether torch can use NVIDIA
      GPUs (C(cuda)).
  returned: always
  type: dict
findings:
  description: Always empty.
  returned: always
  type: list
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import absolute
from ansible.module_utils.hearth_node.system.memory import look


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"python": {"type": "str", "required": True}}, supports_check_mode=True
    )
    module.exit_json(changed=False, facts=look(absolute(module.params["python"])), findings=[])


if __name__ == "__main__":
    main()
