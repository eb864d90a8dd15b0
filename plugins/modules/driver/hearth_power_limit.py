#!/usr/bin/python
"""Ansible module: hold a machine's NVIDIA GPUs to a limit on their power, from each boot on."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_power_limit
short_description: Set a limit on the power of the NVIDIA GPUs, at each boot, or take it back
description:
  - The driver forgets a limit at a restart and when it is loaded anew. So a unit of root's sets it,
    at each boot and whenever the driver's daemon starts; it is on the record of changes.
  - The driver reports the limit in force. Its tool only warns of a limit that it did not
    set; then everything is taken back.
  - A value outside the range of a card comes back as RV(findings) before anything is changed, and
    does not fail the task (see M(hearth_verdict)).
options:
  watts:
    description: >-
      The limit of each card; V(0) undoes an earlier call, and sets the cards'
      default limits again.
    type: int
    default: 0
"""

import shutil
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.commands import run
from ansible.module_utils.hearth.base.nvidia import NVIDIA
from ansible.module_utils.hearth_node.changes.record import Change, Journal, recorded, run_all
from ansible.module_utils.hearth_node.driver import inspect, power_limit
from ansible.module_utils.hearth_node.driver.power_limit import CardLimit
from ansible.module_utils.hearth_node.system import wsl

STAGE = "power_limit"


def write_unit(record: Journal, watts: int, cards: list[CardLimit], program: str) -> list[Change]:
    """Write the unit and have it started at each boot; return the changes."""
    then = power_limit.undoing(cards)
    return [
        record.write(power_limit.PATH, power_limit.unit(watts, program), then=then),
        *(record.link(path, power_limit.PATH) for path in power_limit.LINKS),
    ]


def start(watts: int) -> list[str]:
    """Start the unit; return a finding if the limit is not in force then."""
    if failed := run_all([["systemctl", "daemon-reload"]]):
        return failed
    # Forget its earlier starts: systemd limits their number in a time.
    run("systemctl", "reset-failed", power_limit.UNIT)
    done = run("systemctl", "start", power_limit.UNIT, seconds=60)
    cards, trouble = power_limit.read_limits()
    if done.returncode or trouble:
        # The last lines are systemd's own; those of nvidia-smi say why.
        said = run("journalctl", "--unit", power_limit.UNIT, "--lines", "6", "--output", "cat")
        reason = trouble or said.stdout.strip() or done.stderr.strip()
        return [f"power_limit: {watts}: it could not be set: {reason}"]
    return power_limit.unmoved(watts, cards)


def without_cards(watts: int, trouble: str) -> tuple[str, str]:
    """Return the note and the finding on a machine whose driver lists no card, one of them ''."""
    if wsl.inspect_wsl().gpu:
        return "", (
            f"power_limit: {watts}: Windows drives the GPU of this node, and only it can limit its "
            "power: type nvidia-smi -pl there as administrator, and set power_limit: 0 here"
        )
    if not any(card["vendor"] == NVIDIA for card in inspect.cards()):
        return f"no NVIDIA GPU, so there is no power to limit (power_limit: {watts})", ""
    return "", (
        f"power_limit: {watts}: the driver does not say what its cards allow ({trouble}); "
        "`hearth provision --tags driver` comes first"
    )


def take_back(record: Journal, watts: int = 0) -> dict[str, Any]:
    """Undo an earlier call; return the module's result."""
    diff = record.restore_stage()
    failed = [] if record.check else record.settle()
    return {"diff": diff, "findings": failed, "failed": bool(failed)}


def set_limit(record: Journal, watts: int) -> dict[str, Any]:
    """Hold all cards to `watts`, if each of them can be; return the module's result."""
    unchanged: dict[str, Any] = {"diff": [], "findings": [], "failed": False}
    cards, trouble = power_limit.read_limits()
    if wsl.inspect_wsl().gpu or not cards:
        note, finding = without_cards(watts, trouble)
        if finding and record.check and trouble == "no nvidia-smi":
            # The stage before this one would install the driver, which can then be asked.
            return unchanged | {"note": finding}
        return unchanged | ({"findings": [finding]} if finding else {"note": note})
    if findings := power_limit.findings(watts, cards):
        return unchanged | {"findings": findings}
    program = shutil.which("nvidia-smi") or "/usr/bin/nvidia-smi"
    written = write_unit(record, watts, cards, program)
    diff = [each.diff for each in written if each.changed] + power_limit.differences(watts, cards)
    if record.check or not diff:
        return unchanged | {"diff": diff}
    if findings := start(watts):
        record.restore_stage()
        return {"diff": [], "findings": findings + record.settle(), "failed": True}
    held = ", ".join(f"{card} is held to {watts} of {card.default:g} W" for card in cards)
    return unchanged | {"diff": diff, "note": held}


def main() -> None:
    """Run the module.

    It returns `findings` (empty if nothing is wrong), whether anything is `due` (also in check
    mode), and a `note`: the limit that was set, that there is no GPU to limit, or in check mode
    that a driver comes first.
    """
    module = AnsibleModule(
        argument_spec={"watts": {"type": "int", "default": 0}}, supports_check_mode=True
    )
    watts, check = module.params["watts"], module.check_mode
    with recorded(module, "the limit on power cannot be set"):
        record = Journal(STAGE, check)
        answer = (set_limit if watts else take_back)(record, watts)
    due = bool(answer["diff"])
    if answer.pop("failed"):
        module.fail_json(msg="\n".join(answer["findings"]), changed=due, **answer)
    module.exit_json(changed=due, due=due, **answer)


if __name__ == "__main__":
    main()
