"""The results of the role verify for the nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hearth.verify.judgement import Observation
from hearth_controller.inventory.unreachable import told_by


def seen(
    nodes: Sequence[Mapping[str, Any]],
    looks: Mapping[str, Mapping[str, Any]],
    talks: Mapping[str, Mapping[str, Any]],
    playing: Collection[str],
) -> list[Observation]:
    """Return the verify results of each node.

    `looks` and `talks` are by node the answers of the module `hearth_verify`, empty without one;
    `playing` are the nodes that no earlier stage has lost.
    """
    found = []
    for node in nodes:
        name = str(node["name"])
        look = looks[name]
        found.append(
            Observation(
                name=name,
                rank=int(node["rank"]),
                address=str(node["address"]),
                gone=_gone(look, name in playing),
                findings=tuple(look.get("findings", ())),
                facts=look.get("facts", {}),
                talk=talks[name].get("facts", {}),
            )
        )
    return found


def _gone(look: Mapping[str, Any], playing: bool) -> str:
    """Return the reason why a node could not be inspected, or ''."""
    if look.get("unreachable"):
        why = told_by(look).splitlines()
        return f"cannot be reached: is it on, and its cable in? ({why[0] if why else 'no answer'})"
    if not playing:
        return "an earlier stage has failed on it or could not reach it, see above"
    if look.get("failed"):
        return str(look.get("msg") or "it could not be looked at; -v shows more")
    return ""
