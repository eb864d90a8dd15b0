"""Find a node's time synchronization client, or choose one. No clock is ever set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
