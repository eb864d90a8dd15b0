#!/usr/bin/python
"""Ansible module: install a driver in one call of apt that leaves a machine that boots."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_driver_packages
short_description: Choose a driver's packages with apt's simulation, and install them
description:
  - Adds the packages of the kernels to those of the driver, as far as apt can install them
    together. The same call removes older packages of the driver that are in the way, which
    M(ansible.builtin.apt) cannot. What apt would do is known before anything is changed.
  - RV(findings) name what stands against it. They do not fail the task (see M(hearth_verdict)).
options:
  packages:
    description: The driver's packages.
    type: list
    elements: str
    required: true
  first:
    description: Packages to install before that, since they decide over the driver's versions.
    type: list
    elements: str
    default: []
  kind:
    description: >-
      Kind of Canonical's module packages, such as V(580-open); empty where DKMS builds the modules.
    type: str
    default: ""
  extra:
    description: Packages to install only if apt can.
    type: list
    elements: str
    default: []
"""

import platform
from collections.abc import Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.driver import inspect
from ansible.module_utils.hearth_node.driver.apt import Apt, Simulation, install
from ansible.module_utils.hearth_node.driver.choice import (
    PackageChoice,
    System,
    Wish,
    choose,
    refusal,
)


def this_system() -> System:
    """Return the facts of this machine that a choice depends on."""
    its = inspect.system()
    return System(
        running=platform.release(),
        newest=inspect.next_kernel(),
        version=its["version"],
        loads_built=not inspect.secure_boot() or inspect.signing_key_enrolled(its["id"]),
    )


def carry_out(apt: Apt, first: Sequence[str], wish: Wish) -> tuple[PackageChoice, bool, str]:
    """Install first what decides over versions, then the driver.

    Return the choice, whether anything was changed, and apt's output if it failed.
    """
    asked = apt.simulate(tuple(first)) if first else Simulation()
    if asked.error:
        return refusal(asked.error), False, ""
    changed = bool(asked.brings)
    if changed:
        if trouble := install(first):
            return PackageChoice(), False, trouble
        apt = Apt()
    choice = choose(apt, wish, this_system())
    return choice, changed or choice.changes, install(choice.words) if choice.changes else ""


def main() -> None:
    """Run the module; return the `installed` names, the `findings`, and a `note` on the choice."""
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "required": True},
            "first": {"type": "list", "elements": "str", "default": []},
            "kind": {"type": "str", "default": ""},
            "extra": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    given = module.params
    wish = Wish(tuple(given["packages"]), given["kind"], tuple(given["extra"]))
    apt = Apt()
    if not module.check_mode:
        choice, changed, trouble = carry_out(apt, given["first"], wish)
        if trouble:
            module.fail_json(msg=trouble, changed=changed)
    elif given["first"] or not all(map(apt.has, wish.packages)):
        # The play adds a repository, refreshes apt's lists or pins versions before it chooses.
        choice, changed = PackageChoice(list(wish.packages)), True
    else:
        choice = choose(apt, wish, this_system())
        changed = choice.changes
    packages = [*given["first"], *choice.words]
    module.exit_json(
        changed=changed,
        installed=[*given["first"], *choice.packages],
        note="\n".join([*choice.notes, *([f"({' '.join(packages)})"] if choice.packages else [])]),
        findings=choice.findings,
    )


if __name__ == "__main__":
    main()
