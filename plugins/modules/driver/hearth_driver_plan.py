#!/usr/bin/python
"""Ansible module: plan the driver of each machine. Runs once, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_driver_plan
short_description: Decide over the whole cluster which driver each machine gets
description:
  - Touches nothing; M(hearth_driver) has looked at the machines before.
options:
  machines:
    description:
      - "By name: C(look) from M(hearth_driver), and the options C(install), C(branch),
        C(repository), C(url) and C(key) of the role driver."
    type: dict
    required: true
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.driver.decision import decide
from ansible.module_utils.hearth_node.driver.machine import DriverPlan, Machine


def shown(plans: dict[str, DriverPlan]) -> str:
    """Return one or more lines per machine; machines with equal lines share them."""
    names: dict[str, list[str]] = {}
    for name, plan in plans.items():
        text = plan.note
        if plan.action == "install":
            text += f"\n({' '.join([*plan.first, *plan.packages])})"
        if text:
            names.setdefault(text, []).append(name)
    return "\n".join(
        f"  {', '.join(each)}: " + text.replace("\n", "\n    ") for text, each in names.items()
    )


def main() -> None:
    """Run the module; return the `plans` by name, and the text to `say`."""
    module = AnsibleModule(
        argument_spec={"machines": {"type": "dict", "required": True}}, supports_check_mode=True
    )
    machines = [Machine(name, **known) for name, known in module.params["machines"].items()]
    try:
        plans = decide(machines)
    except ValueError as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=False,
        plans={name: asdict(plan) for name, plan in plans.items()},
        say=shown(plans),
    )


if __name__ == "__main__":
    main()
