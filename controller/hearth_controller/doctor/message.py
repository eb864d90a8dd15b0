"""The findings of all nodes as one message. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from hearth.base.places import LIBRARIES
from hearth.base.taken_address import CURE, taken_twice
from hearth_controller.inventory.unreachable import describe_failure

_CURES = {
    **dict.fromkeys(
        LIBRARIES, "run `hearth provision --tags python`, which installs the locked version"
    ),
    "Hearth": "run `hearth provision --tags workspace`, which brings this computer's code",
    "model": "remove the folder of the model, so that it is brought again, or copy your own again",
    "data": "remove data/ in the workspace, so that it is brought and tokenised again",
}


def message(
    results: Mapping[str, Sequence[Mapping[str, Any]]],
    playing: Collection[str],
    common: Sequence[str] = (),
    same: Iterable[str] = (),
    distinct: Iterable[str] = (),
    addresses: Mapping[str, str] | None = None,
    then: str = "",
    without: bool = False,
) -> str:
    """Return all findings of the nodes' `results` as one text that ends with `then`, or ''.

    A node that is not `playing` failed earlier. `common` are findings of the controller. The facts
    `same` must be equal on all nodes, and no two nodes may share one of `distinct`. Nor may another
    machine have one of the nodes' `addresses`. `without`: the text advises how to continue without
    unreachable nodes.
    """
    by_node = {
        node: [finding.removeprefix(f"{node}: ") for finding in findings_of(each)]
        if node in playing
        else ["failed, see above"]
        for node, each in results.items()
    }
    facts = {
        node: {name: fact for result in each for name, fact in result.get("facts", {}).items()}
        for node, each in results.items()
    }
    common = [*common, *differing(facts, same), *shared(facts, distinct)]
    common += _taken_twice(facts, addresses or {})
    if not common and not any(by_node.values()):
        return ""
    advice = way_out(results, playing)
    last = [then, advice if without else ""]
    return as_message(by_node, common, "\n".join(filter(None, last)))


def findings_of(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the findings of one node's results, each once."""
    findings = []
    # The result of a loop says why only in those of its items.
    items = [item for result in results for item in result.get("results") or [result]]
    for result in items:
        if result.get("unreachable"):
            findings.append(f"cannot be reached: {describe_failure(result)}")
        elif result.get("failed") and not result.get("findings"):
            findings.append(describe_failure(result) or "failed without saying why")
        findings += result.get("findings", [])
    return list(dict.fromkeys(findings))


def differing(facts: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """Return a finding for each fact of `names` that differs between nodes, with its cure.

    `facts` are by node; a node that does not have the fact is left out.
    """
    findings = []
    for name in names:
        values = {node: str(known[name]) for node, known in facts.items() if name in known}
        counts = Counter(values.values())
        if len(counts) < 2:
            continue
        each = ", ".join(f"{node} {value}" for node, value in values.items())
        usual, count = counts.most_common(1)[0]
        odd = [node for node, value in values.items() if value != usual]
        there = ", ".join(odd) if 2 * count > len(values) else "the node that is wrong"
        cure = _CURES.get(name, "")
        findings.append(
            f"{name} is not the same on all nodes: {each}{cure and f'; on {there} {cure}'}"
        )
    return findings


def shared(facts: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """Return a finding for each fact of `names` whose value several nodes share.

    A node that does not have the fact, or has it empty, is left out.
    """
    findings = []
    for name in names:
        nodes: dict[str, list[str]] = {}
        for node, known in facts.items():
            nodes.setdefault(str(known.get(name) or node), []).append(node)
        findings += [
            f"{' and '.join(sharing)} have the same {name} {value}: one machine under two names, "
            "or a copied disk"
            for value, sharing in nodes.items()
            if len(sharing) > 1
        ]
    return findings


def _taken_twice(facts: Mapping[str, Mapping[str, Any]], addresses: Mapping[str, str]) -> list[str]:
    """Return a finding for each node whose address another machine has.

    `facts` are by node those of preflight, where `peers` are the nodes that each reaches.
    """
    there = {node: known for node, known in facts.items() if "network" in known}
    views = {node: known["network"] for node, known in there.items()}
    findings = []
    for node in facts:
        reached = node in there and all(
            node in known["peers"] for other, known in there.items() if other != node
        )
        if twice := taken_twice(node, addresses.get(node, ""), views, reached):
            findings.append(f"{twice} have the address {addresses[node]} of {node}: {CURE}")
    return findings


def way_out(
    results: Mapping[str, Iterable[Mapping[str, Any]]], playing: Collection[str] | None = None
) -> str:
    """Return the advice to continue without the nodes that cannot be reached or failed, or ''.

    `results` are by node; a node that is not `playing` failed earlier. There is no advice if all
    nodes can take part, or none.
    """
    away = [
        node
        for node, of in results.items()
        if (playing is not None and node not in playing)
        or any(each.get("unreachable") for each in of)
    ]
    there = [node for node in results if node not in away]
    if not away or not there:
        return ""
    return f"To go on without {', '.join(away)}: -e nodes={','.join(there)}"


def as_message(by_node: Mapping[str, list[str]], common: list[str], then: str) -> str:
    """Return all findings as one text; nodes with equal findings are named together."""
    lines = list(common)
    for findings in dict.fromkeys(tuple(found) for found in by_node.values() if found):
        nodes = ", ".join(node for node, found in by_node.items() if tuple(found) == findings)
        lines += [f"{nodes}: {finding}" for finding in findings]
    return "\n".join([*lines, *([then] if then else [])])
