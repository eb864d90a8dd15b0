#!/usr/bin/python
"""Ansible module: inspect a machine's GPUs and driver, and load an installed driver."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_driver
short_description: Look at this machine's GPUs and driver; load the driver that was installed
description:
  - Without O(installed) it only looks. M(hearth_driver_plan) decides from its facts.
  - With O(installed) it loads the driver where nothing stands against it, adds the
    installed packages to the record of changes, and says in RV(findings) what a person must do.
options:
  options:
    description: The role's options for this machine, as M(hearth_driver_plan) wants them.
    type: dict
    default: {}
  installed:
    description: Packages that were installed, or an empty list if there was nothing to install.
    type: list
    elements: str
  how:
    description: Command that restarts this machine, for a person.
    type: str
    default: sudo systemctl reboot
  may_restart:
    description: Whether the machine may be restarted.
    type: bool
    default: false
  controller:
    description: Whether it is the machine that plays the playbook, which is never restarted.
    type: bool
    default: false
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.commands import run
from ansible.module_utils.hearth.base.nvidia import (
    THEN_AGAIN,
    how_to_enrol,
    not_restarted,
    restart_warning,
)
from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.changes.record import Journal, recorded
from ansible.module_utils.hearth_node.driver import inspect


def load(look: dict) -> tuple[bool, str]:
    """Load the installed driver; return whether it loaded, and the error output if not."""
    if look["loaded"] or look["restart"]:
        return False, ""
    done = run("modprobe", "nvidia", seconds=60)
    return done.returncode == 0, (done.stdout + done.stderr).strip()


def note(packages: list[str], installed: dict[str, str]) -> str:
    """Return the note on an install for the record: no reset undoes it, but the user can."""
    # A kernel came along, which the machine still needs.
    own = [name for name in packages if name in installed and not name.startswith("linux-image-")]
    versions = ", ".join(f"{name} {installed[name]}" for name in own)
    remove = f"sudo apt-get remove {' '.join(own)}"
    return f"driver packages installed: {versions}. To remove them: {remove}"


def after_install(
    look: Mapping[str, Any], output: str, how: str, *, may_restart: bool, controller: bool
) -> str:
    """Return the steps left to the user before an installed driver works; empty if none.

    `output` is the output of loading the module, `how` the command that restarts the machine;
    `may_restart` says whether it will be restarted anyway.
    """
    if look["works"]:
        return ""
    if reason := look["restart"]:
        if look["lockout"]:
            return f"{reason}, but {not_restarted(look)}, {THEN_AGAIN}"
        if controller:
            return (
                f"{reason}. This machine plays the playbook, so Hearth never restarts it: "
                f"sudo systemctl reboot, {THEN_AGAIN}"
            )
        if may_restart:
            return ""
        return f"{reason}. Restart it ({how}) or set driver_reboot: true, {THEN_AGAIN}"
    if "Key was rejected" in output:
        return how_to_enrol(look["system"]["id"])
    if look["next_boot"]:
        return f"{look['next_boot']}, and no restart changes that: {look['remedy']}, {THEN_AGAIN}"
    if look["loaded"]:
        return f"driver {look['loaded']} is loaded, but nvidia-smi does not answer: call it there"
    return (
        f"driver {look['library'] or '?'} is installed, but its module cannot be loaded "
        f"({output or 'modprobe gave no reason'}). Look at `dkms status` and `dmesg | grep -i nvrm`"
    )


def main() -> None:
    """Run the module.

    It returns the facts (`look`), the same with the options for `hearth_driver_plan`
    (`machine`), the `boot` id, the reason why only a restart helps (`restart`, or ''), and
    `findings`.
    """
    module = AnsibleModule(
        argument_spec={
            "options": {"type": "dict", "default": {}},
            "installed": {"type": "list", "elements": "str"},
            "how": {"type": "str", "default": "sudo systemctl reboot"},
            "may_restart": {"type": "bool", "default": False},
            "controller": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    look = inspect.inspect_driver()
    changed, output, findings = False, "", []
    given = module.params
    if given["installed"] is not None and not module.check_mode:
        changed, output = load(look)
        look = inspect.inspect_driver()
        if given["installed"]:
            with recorded(module, "The installed packages cannot be recorded"):
                Journal("driver").note(note(given["installed"], look["installed"]))
        todo = after_install(
            look,
            output,
            given["how"],
            may_restart=given["may_restart"],
            controller=given["controller"],
        )
        findings = [todo] if todo else []
    works = f"driver {look['loaded']} works{restart_warning(look)}"
    answer = {"note": works} if changed and look["works"] else {}
    module.exit_json(
        changed=changed,
        boot=text_of("/proc/sys/kernel/random/boot_id").strip(),
        look=look,
        machine={"look": look, **given["options"]},
        restart=look["restart"],
        findings=findings,
        **answer,
    )


if __name__ == "__main__":
    main()
