"""The packages that nodes lack: fetched once for all nodes of one kind, and described."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hearth.base.errors import SupplyError
from hearth.base.text import listed
from hearth_controller.supply.extra import ExtraLock
from hearth_controller.supply.locks import Pin, as_requirements, lock_in, not_for
from hearth_controller.supply.target import PROCESSORS, PYTHONS, Target
from hearth_controller.supply.wheelhouse import Show, Wheelhouse

Kind = tuple[str, Target]
"""Lock and platform: nodes of one kind get the same wheels."""

_NAMED = 5


def supply(
    inspections: Mapping[str, Mapping[str, Any]],
    locks: Path,
    extra: ExtraLock,
    cache: Path,
    builds_from: str,
    show: Show,
) -> dict[str, list[dict[str, Any]]]:
    """Fetch the packages that nodes lack to `cache`; return the wheels by node.

    `inspections` are the inspections by node, `extra` resolves the packages that the inventory
    adds; `builds_from` is the index for builds of a version.

    Raises:
        SupplyError: It cannot be fetched or stored.
    """
    try:
        resolve_extra(inspections, locks, extra, show)
        lacking, house = wanted(inspections, locks, extra), Wheelhouse(cache / "wheels")
        fetched = {
            kind: house.fetch(pins, kind[1], builds_from, show)
            for kind, pins in by_kind(inspections, lacking).items()
        }
        return {
            node: [
                asdict(wheel) | {"path": str(wheel.path), "name": wheel.path.name}
                for wheel in (fetched[kind_of(inspections[node])][pin.name] for pin in pins)
            ]
            for node, pins in lacking.items()
        }
    except OSError as error:
        raise SupplyError(
            f"{cache} cannot be used for downloads ({error}): free space, or set XDG_CACHE_HOME to "
            "another folder"
        ) from None


def kind_of(inspection: Mapping[str, Any]) -> Kind:
    """Return lock and platform of a node, from its inspection."""
    target = inspection["target"]
    return inspection["kind"], Target(tuple(target["python"]), target["machine"], target["glibc"])


def resolve_extra(
    inspections: Mapping[str, Mapping[str, Any]], locks: Path, extra: ExtraLock, show: Show
) -> None:
    """Resolve the packages that the inventory adds, once for each kind of node and list.

    Raises `SupplyError` with the findings of all of them.
    """
    findings = []
    for inspection in inspections.values():
        if not inspection.get("extra"):
            continue
        kind, target = kind_of(inspection)
        lock, names = lock_in(locks, kind), inspection["extra"]
        if extra.pins(kind, target, names, lock) is None:
            show(f"choosing versions of {', '.join(names)}", 0)
            try:
                own = inspection["others"].items()
                here = {name: version for name, version in own if name not in inspection["added"]}
                extra.resolve(kind, target, names, lock, here)
            except SupplyError as error:
                findings.append(str(error))
    if findings:
        raise SupplyError("\n".join(dict.fromkeys(findings)))


def pins_of(inspection: Mapping[str, Any], locks: Path, extra: ExtraLock) -> dict[str, Pin]:
    """Return all pins that a node is to have by name, as far as they are resolved."""
    return lock_in(locks, inspection["kind"]) | (extra_pins(inspection, locks, extra) or {})


def extra_pins(
    inspection: Mapping[str, Any], locks: Path, extra: ExtraLock
) -> dict[str, Pin] | None:
    """Return the pins of the packages that the inventory adds; None if they are not resolved."""
    if not inspection.get("extra"):
        return {}
    kind, target = kind_of(inspection)
    return extra.pins(kind, target, inspection["extra"], lock_in(locks, kind))


def with_extra(
    inspection: Mapping[str, Any], locks: Path, extra: ExtraLock
) -> list[dict[str, str]]:
    """Return a node's differing packages of the lock, then those that the inventory adds.

    As long as these are not resolved, the names in the inventory stand for them.
    """
    pins = extra_pins(inspection, locks, extra)
    names = lock_in(locks, inspection["kind"])
    differing = [each for each in inspection["differing"] if each["name"] in names]
    if pins is None:
        asked = {canonicalize_name(Requirement(each).name): each for each in inspection["extra"]}
        pins = {name: Pin(name, each, ()) for name, each in asked.items() if name not in names}
    others = inspection.get("others", {})
    return differing + [
        {"name": pin.name, "has": others.get(pin.name, ""), "wants": pin.version}
        for pin in pins.values()
        if others.get(pin.name) != pin.version
    ]


def surplus(inspection: Mapping[str, Any], locks: Path, extra: ExtraLock) -> list[str]:
    """Return the packages that Hearth added and that the inventory does not name any more."""
    pins = extra_pins(inspection, locks, extra)
    kept = {} if pins is None else lock_in(locks, inspection["kind"]) | pins
    return [] if pins is None else [name for name in inspection["added"] if name not in kept]


def wanted(
    inspections: Mapping[str, Mapping[str, Any]], locks: Path, extra: ExtraLock
) -> dict[str, list[Pin]]:
    """Return the missing pins by node; nodes that lack none are left out."""
    lacking = {}
    for node, inspection in inspections.items():
        if inspection.get("differing"):
            pins = pins_of(inspection, locks, extra)
            differing = with_extra(inspection, locks, extra)
            lacking[node] = [pins[each["name"]] for each in differing]
    return lacking


def by_kind(
    inspections: Mapping[str, Mapping[str, Any]], lacking: Mapping[str, list[Pin]]
) -> dict[Kind, list[Pin]]:
    """Return the missing pins by kind of node, each pin once."""
    groups: dict[Kind, dict[str, Pin]] = {}
    for node, pins in lacking.items():
        groups.setdefault(kind_of(inspections[node]), {}).update({pin.name: pin for pin in pins})
    return {kind: list(pins.values()) for kind, pins in groups.items()}


def drift(inspection: Mapping[str, Any], end: str) -> str:
    """Return a sentence on a node's differing packages; `end` states their outcome."""
    differing, surplus = inspection["differing"], inspection.get("surplus", ())
    if not inspection["present"]:
        return f"{len(differing)} packages {end}"
    lines = [f"{differences(differing)} — {end}"] if differing else []
    lines += [f"{listed(surplus)} — not in python_extra any more"] if surplus else []
    return "; ".join(lines)


def differences(differing: Sequence[Mapping[str, str]]) -> str:
    """Return packages that differ from the lock as text: `a 1 instead of 2, b missing`."""
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
    return f"{', '.join(wrong[:_NAMED])}{more}"


def unsupported(inspection: Mapping[str, Any], pins: Mapping[str, Pin]) -> list[str]:
    """Return a finding if the lock has no build of a wanted package for this node."""
    if not inspection["target"]["python"]:
        return []
    _, target = kind_of(inspection)
    pythons = " to ".join("{}.{}".format(*version) for version in (PYTHONS[0], PYTHONS[-1]))
    if target.machine in PROCESSORS:
        way_out = "set python_mode: conda, which brings Python 3.11"
    else:
        way_out = "leave this node out of the cluster"
    return [
        f"{pin} is locked for Python {pythons} on {' and '.join(PROCESSORS)}, and here is Python "
        f"{target.python[0]}.{target.python[1]} on {target.machine}: {way_out}"
        for pin in not_for(
            (pins[each["name"]] for each in inspection["differing"] if each["name"] in pins), target
        )
    ]


def installation(
    inspection: Mapping[str, Any],
    wheels: Sequence[Mapping[str, Any]],
    locks: Path,
    extra: ExtraLock,
) -> dict[str, Any]:
    """Return arguments of the module `hearth_packages` that make a node's packages as locked."""
    differing, pins = with_extra(inspection, locks, extra), pins_of(inspection, locks, extra)
    gone = surplus(inspection, locks, extra)
    return {
        "added": sorted(
            {*(extra_pins(inspection, locks, extra) or ()), *inspection["added"]} - {*gone}
        ),
        "locked": as_requirements(pins[each["name"]] for each in differing),
        "wanted": {"locked": {each["name"]: each["wants"] for each in differing}},
        "files": {wheel["name"]: wheel["sha256"] for wheel in wheels},
        "needed": sum(wheel["unpacked"] for wheel in wheels),
    }
