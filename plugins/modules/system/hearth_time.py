#!/usr/bin/python
"""Ansible module: ensure that this node's clock is synchronized."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_time
short_description: See to it that a node synchronises its clock
description:
  - An active NTP client stays. Where there is none, systemd-timesyncd is switched on,
    and installed if need be. The clock itself and the time zone are never set.
  - The action plugin of the same name compares the clock with the controller's.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.commands import run
from ansible.module_utils.hearth_node.changes.record import Journal, recorded, run_all

TIMESYNCD = "systemd-timesyncd.service"
# In the order in which people see them; chronyd is chrony's name on other systems.
CLIENTS = (
    TIMESYNCD,
    "chrony.service",
    "chronyd.service",
    "ntpsec.service",
    "ntp.service",
    "openntpd.service",
)
PROPERTIES = (
    *("Id", "LoadState", "ActiveState", "UnitFileState", "FragmentPath"),
    *("ConditionResult", "ConditionTimestampMonotonic"),
)


@dataclass(frozen=True)
class ClockChoice:
    """`do` is `keep`, `enable` or `install`, or empty if a person has to decide: `finding`."""

    do: str
    unit: str = ""
    finding: str = ""


def parse(shown: str) -> list[dict[str, str]]:
    """Return the properties of each unit in the output of `systemctl show`."""
    return [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for block in shown.strip().split("\n\n")
        if block.strip()
    ]


def choose(units: Iterable[Mapping[str, str]]) -> ClockChoice:
    """Decide what to do about the clock.

    Any active client is kept, and so is one whose systemd condition fails: in a container the
    clock is the host's. An installed client is never replaced.
    """
    there = {unit["Id"]: unit for unit in units if unit.get("LoadState") in ("loaded", "masked")}
    for name, unit in there.items():
        if unit["ActiveState"] in ("active", "activating", "reloading"):
            return ClockChoice("keep", name)
    for name, unit in there.items():
        if unit["LoadState"] == "masked" or not unit["UnitFileState"].startswith("enabled"):
            continue
        tried = unit["ConditionTimestampMonotonic"] != "0"
        if unit["ActiveState"] == "inactive" and tried and unit["ConditionResult"] == "no":
            return ClockChoice("keep", name)
        if name == TIMESYNCD and not tried:
            return ClockChoice("enable", name)
        return ClockChoice(
            "",
            name,
            f"{name} is to keep the clock but does not run ({unit['ActiveState']}); "
            f"`journalctl --unit={name}` says why",
        )
    others = [name for name in there if name != TIMESYNCD]
    if others:
        return ClockChoice(
            "",
            others[0],
            f"nothing keeps the clock: {others[0]} is installed but off; "
            f"`systemctl enable --now {others[0]}`, or remove it",
        )
    if TIMESYNCD not in there:
        return ClockChoice("install", TIMESYNCD)
    if there[TIMESYNCD]["LoadState"] == "masked":
        return ClockChoice(
            "",
            TIMESYNCD,
            f"nothing keeps the clock: {TIMESYNCD} is masked; `systemctl unmask {TIMESYNCD}`, "
            "or install chrony",
        )
    return ClockChoice("enable", TIMESYNCD)


_WANTS = "/etc/systemd/system/sysinit.target.wants"
_BUS = "/etc/systemd/system/dbus-org.freedesktop.timesync1.service"


def units(module: AnsibleModule) -> list[dict[str, str]]:
    """Return systemd's properties of all time synchronization clients."""
    command = ["systemctl", "show", "--property", ",".join(PROPERTIES), *CLIENTS]
    _, out, _ = module.run_command(command, check_rc=True)
    return parse(out)


def install(record: Journal) -> list[str]:
    """Install systemd-timesyncd, whose package enables it; return findings."""
    done = run(
        *("apt-get", "install", "--yes", "--no-install-recommends", "systemd-timesyncd"),
        "--option=DPkg::Lock::Timeout=120",
        seconds=None,
        DEBIAN_FRONTEND="noninteractive",
    )
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        return [
            "nothing keeps the clock, and systemd-timesyncd could not be installed: "
            f"install it, or chrony. apt said:\n{last}"
        ]
    record.note("package systemd-timesyncd, with its settings in /etc/systemd")
    return []


def enable(record: Journal, unit: dict[str, str]) -> list[dict]:
    """Do what `systemctl enable --now` would, on the record; return the differences."""
    name, file = unit["Id"], unit["FragmentPath"]
    back = [["systemctl", "daemon-reload"], ["systemctl", "stop", name]]
    paths = (f"{_WANTS}/{name}", _BUS)
    changes = [record.link(path, file, then=back) for path in paths]
    return [change.diff for change in changes if change.changed]


def main() -> None:
    """Run the module; return the unit that keeps the clock (`client`), and the time `now`."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    check, diff, findings = module.check_mode, [], []
    with recorded(module, "nothing keeps the clock"):
        choice: ClockChoice = choose(units(module))
        if choice.do == "enable":
            unit = next(each for each in units(module) if each["Id"] == choice.unit)
            diff = enable(Journal("time", check), unit)
            if not check:
                commands = [["systemctl", "daemon-reload"], ["systemctl", "start", choice.unit]]
                findings = run_all(commands)
        elif choice.do == "install":
            findings = [] if check else install(Journal("time"))
        elif choice.finding:
            findings = [choice.finding]
    changed = choice.do in ("enable", "install")
    if findings:
        module.fail_json(msg="\n".join(findings), findings=findings)
    module.exit_json(changed=changed, diff=diff, client=choice.unit, now=time.time())


if __name__ == "__main__":
    main()
