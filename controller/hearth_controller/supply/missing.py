"""The packages that nodes lack, and Miniforge, fetched once for all nodes of one kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hearth.base.errors import SupplyError
from hearth_controller.supply.download import Show, download
from hearth_controller.supply.locks import Pin, lock_in
from hearth_controller.supply.target import Target
from hearth_controller.supply.wheelhouse import Wheel, Wheelhouse

Kind = tuple[str, Target]
"""Lock and platform: nodes of one kind get the same wheels."""


def supply(
    looks: Mapping[str, Mapping[str, Any]],
    locks: Path,
    cache: Path,
    builds_from: str,
    miniforge: tuple[str, str],
    show: Show,
) -> dict[str, Any]:
    """Fetch to `cache` what nodes lack; return the `wheels` by node, and Miniforge's `installer`.

    `looks` are the inspections by node, `builds_from` is the index for builds of a version, and
    `miniforge` URL and checksum of the installer.

    Raises:
        SupplyError: It cannot be fetched or stored.
    """
    try:
        lacking, house = wanted(looks, locks), Wheelhouse(cache / "wheels")
        fetched = {
            kind: house.fetch(pins, kind[1], builds_from, show)
            for kind, pins in by_kind(looks, lacking).items()
        }
        wheels = {
            node: [as_dict(fetched[kind_of(looks[node])][pin.name]) for pin in pins]
            for node, pins in lacking.items()
        }
        if not any(look.get("lacks_miniforge") for look in looks.values()):
            return {"wheels": wheels, "installer": ""}
        installer = cache / "downloads" / miniforge[0].rsplit("/", 1)[-1]
        download(*miniforge, installer, show)
        return {"wheels": wheels, "installer": str(installer)}
    except OSError as error:
        raise SupplyError(
            f"{cache} cannot be used for downloads ({error}): free space, or set python_cache"
        ) from None


def kind_of(look: Mapping[str, Any]) -> Kind:
    """Return lock and platform of a node, from its inspection."""
    return look["kind"], Target.of(look["target"])


def wanted(looks: Mapping[str, Mapping[str, Any]], locks: Path) -> dict[str, list[Pin]]:
    """Return the missing pins by node; nodes that match the lock are left out."""
    lacking = {}
    for node, look in looks.items():
        if look.get("differing"):
            pins = lock_in(locks, look["kind"])
            lacking[node] = [pins[each["name"]] for each in look["differing"]]
    return lacking


def by_kind(
    looks: Mapping[str, Mapping[str, Any]], lacking: Mapping[str, list[Pin]]
) -> dict[Kind, list[Pin]]:
    """Return the missing pins by kind of node, each pin once."""
    groups: dict[Kind, dict[str, Pin]] = {}
    for node, pins in lacking.items():
        groups.setdefault(kind_of(looks[node]), {}).update({pin.name: pin for pin in pins})
    return {kind: list(pins.values()) for kind, pins in groups.items()}


def as_dict(wheel: Wheel) -> dict[str, Any]:
    """Return a wheel as a dict that fits into a task's result."""
    return {
        "path": str(wheel.path),
        "name": wheel.path.name,
        "sha256": wheel.sha256,
        "size": wheel.size,
        "unpacked": wheel.unpacked,
    }
