"""The packages of a node that differ from the lock: as text, as findings, and to be installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hearth_controller.supply.locks import Pin, as_requirements, not_for
from hearth_controller.supply.target import ONE_BUILD, Target

_NAMED = 5


def drift(look: Mapping[str, Any], end: str) -> str:
    """Return a sentence on a node's differing packages; `end` says what was done about them."""
    differing = look["differing"]
    if not look["present"]:
        return f"{len(differing)} packages {end}"
    wrong = [
        f"{each['name']} {each['has']} instead of {each['wants']}"
        for each in differing
        if each["has"]
    ]
    lacking = [each["name"] for each in differing if not each["has"]]
    if len(lacking) > _NAMED:
        wrong.append(f"{len(lacking)} packages missing")
    elif lacking:
        wrong.append(f"{', '.join(lacking)} missing")
    more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    return f"{', '.join(wrong[:_NAMED])}{more} — {end}"


def unsupported(
    differing: Iterable[Mapping[str, str]], pins: Mapping[str, Pin], target: Target
) -> list[str]:
    """Return a finding if the lock has no build of a wanted package for this node."""
    if target.machine == ONE_BUILD[1]:
        way_out = "set python_mode: conda, which brings Python 3.11"
    else:
        way_out = "leave this node out of the cluster"
    return [
        f"{pin} is locked for Python 3.11 on x86_64 only, and here is Python "
        f"{target.python[0]}.{target.python[1]} on {target.machine}: {way_out}"
        for pin in not_for((pins[each["name"]] for each in differing), target)
    ]


def installation(
    look: Mapping[str, Any], wheels: Sequence[Mapping[str, Any]], pins: Mapping[str, Pin]
) -> dict[str, Any]:
    """Return arguments of the module `hearth_packages` that install a node's differing packages."""
    differing = look["differing"]
    return {
        "locked": as_requirements(pins[each["name"]] for each in differing),
        "wanted": {"locked": {each["name"]: each["wants"] for each in differing}},
        "files": {wheel["name"]: wheel["sha256"] for wheel in wheels},
        "needed": sum(wheel["unpacked"] for wheel in wheels),
    }
