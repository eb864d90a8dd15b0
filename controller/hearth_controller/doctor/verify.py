"""Verification of a cluster: each node's steps, the checks over their answers, and a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hearth.base.nvidia import short_gpu
from hearth.base.text import card_memory, fitted, link_speed, wrapped
from hearth_controller.base.screen import TABLE_WIDTH
from hearth_controller.doctor import gpus, links, software
from hearth_controller.doctor.finding import Check, Outcome
from hearth_controller.doctor.links import link_mbit, locks_too_little
from hearth_controller.doctor.node import ExaminedNode, NodeGroup, Observation
from hearth_controller.inventory.unreachable import describe_failure

Level = Literal["good", "advice", "fault"]
Line = tuple[Level | None, str]

MARKS: dict[Level, str] = {"good": "✓", "advice": "!", "fault": "✗"}

_IDLE = 30
"""Idle timeout of a node's listener in seconds; one more second is added per node."""

_TITLES = ("  node", "rank", "address", "NIC", "link", "GPU", "memory", "driver", "torch")

_VITAL = (gpus.torch, links.reach, software.versions)
"""Checks of doctor that keep a node from training, in the order of repair."""

_SPEED = (links.link, links.latency)
"""Checks of doctor that cost a node speed at most."""


@dataclass(frozen=True)
class Sum:
    """Result of the all-reduce: the facts of rank 0, or the node that failed and the reason."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    culprit: str | None = None
    failure: str = ""


@dataclass(frozen=True)
class NodeVerdict:
    """Verdict on a node, and the action to take if it is not good."""

    level: Level
    text: str = ""


def spec_of(
    verb: str, own: Observation, nodes: Sequence[Observation], nproc: int, limit: float
) -> dict[str, Any] | None:
    """Return the spec of the command `hearth.node VERB` on a node, None if it takes no part.

    `nproc` processes take part in the all-reduce, 0 is one per GPU; it may take `limit` seconds.
    """
    if verb == "facts":
        allowed = [node.address for node in nodes]
        return {"address": own.address, "allowed": allowed, "idle": _IDLE + len(nodes)}
    usable = [node for node in nodes if node.usable]
    if own not in usable or len(usable) < 2:
        return None
    if verb == "talk":
        peers = [
            {"name": node.name, "address": node.address, "port": node.facts["port"]}
            for node in usable
        ]
        busy = any(node.facts["busy"] for node in usable)
        return {"own": own.name, "peers": peers, "speed": not busy}
    if why_no_sum(nodes):
        return None
    nprocs = [nproc or max(1, node.facts["devices"]) for node in usable]
    launch = {
        "run": "hearth-verify",
        "node": own.name,
        "rank": usable.index(own),
        "nodes": [node.name for node in usable],
        "addresses": [node.address for node in usable],
        "ports": [node.facts["meeting_port"] for node in usable],
        "nproc": nprocs[usable.index(own)],
        "nprocs": nprocs,
        "ready_timeout": limit / 2,
        "elastic": False,
        "stop_grace": 5,
    }
    return {"launch": launch, "limit": limit}


def observations(
    nodes: Sequence[Mapping[str, Any]],
    inspections: Mapping[str, Mapping[str, Any]],
    talks: Mapping[str, Mapping[str, Any]],
    playing: Collection[str],
) -> list[Observation]:
    """Return the verify results of each node.

    `inspections` and `talks` are by node the answers of the command `hearth.node`, empty without
    one; `playing` are the nodes that no earlier stage has lost.
    """
    return [
        Observation(
            name,
            int(node["rank"]),
            str(node["address"]),
            gone=why_gone(inspections[name], name in playing),
            findings=tuple(inspections[name].get("findings", ())),
            facts=inspections[name].get("facts", {}),
            talk=talks[name].get("facts", {}),
        )
        for name, node in ((str(node["name"]), node) for node in nodes)
    ]


def why_gone(inspection: Mapping[str, Any], playing: bool) -> str:
    """Return the reason why a node could not be inspected, or ''."""
    if inspection.get("unreachable"):
        why = describe_failure(inspection).splitlines()
        return f"cannot be reached: is it on, and its cable in? ({why[0] if why else 'no answer'})"
    if not playing:
        return "an earlier stage has failed on it or could not reach it, see above"
    if inspection.get("failed"):
        return str(inspection.get("msg") or "it could not be looked at; -v shows more")
    return ""


def sum_of(answers: Iterable[Mapping[str, Any]]) -> Sum | None:
    """Return the result of the all-reduce from the nodes' answers, None if it was not tried."""
    tried = [answer for answer in answers if "facts" in answer]
    failed = [answer for answer in tried if answer.get("findings")]
    if failed:
        if culprit := failed[0]["facts"].get("culprit"):
            return Sum(culprit=culprit, failure=failed[0]["findings"][0])
        each = dict.fromkeys(finding for answer in failed for finding in answer["findings"])
        return Sum(failure="; ".join(each))
    return Sum(facts=next((a["facts"] for a in tried if a["facts"]), {})) if tried else None


def why_no_sum(nodes: Sequence[Observation]) -> str:
    """Return the reason why no all-reduce should be tried, or "" if it should."""
    usable = [node for node in nodes if node.usable]
    if len(usable) < 2:
        return "since it takes two nodes"
    if busy := {str(node.facts["busy"]) for node in usable if node.facts["busy"]}:
        return f"since run {', '.join(sorted(busy))} is under way"
    if any(not node.talk or node.talk["failed"] for node in usable):
        return "since not all nodes answer each other"
    return ""


def judge(
    nodes: Sequence[Observation], total: Sum | None, hearth: str, lock: Mapping[str, str]
) -> dict[str, NodeVerdict]:
    """Return the advice for each node: its first fault, or else the first possible improvement.

    `total` is None if no all-reduce was tried; `hearth` is the command for these nodes, `lock` each
    node's `python_lock` (`cpu` means that no GPU is to be used).
    """
    examined = tuple(ExaminedNode(node, lock=lock.get(node.name, "auto")) for node in nodes)
    cluster, found = NodeGroup(examined, hearth), {}
    for node in examined:
        fault = next(_faults(node, cluster, total), None)
        hint = next(_hints(node, cluster), None)
        advice = NodeVerdict("advice", hint) if hint else NodeVerdict("good")
        found[node.name] = NodeVerdict("fault", fault) if fault else advice
    return found


def _faults(node: ExaminedNode, cluster: NodeGroup, total: Sum | None) -> Iterator[str]:
    """Yield the faults of a node in the order of their repair."""
    verified = node.verify
    yield from _texts([links.duplicate], node, cluster, "broken")
    if verified.gone:
        yield verified.gone
    yield from verified.findings
    if not verified.usable:
        yield "it did not report its facts; -v shows more"
    yield from _texts(_VITAL, node, cluster, "broken")
    if total and total.culprit == node.name:
        yield f"the all-reduce failed here: {total.failure}"
    if total and node.name in total.facts.get("wrong", ()):
        yield "its sum in the all-reduce was wrong: test its memory and its network card"


def _hints(node: ExaminedNode, cluster: NodeGroup) -> Iterator[str]:
    """Yield possible improvements for a node that can train."""
    if node.verify.usable:
        yield from _texts(_SPEED, node, cluster, "broken", "degraded")
        yield from filter(None, [locks_too_little(node.facts)])
        yield from _texts(_VITAL, node, cluster, "degraded")


def _texts(
    checks: Iterable[Check], node: ExaminedNode, cluster: NodeGroup, *outcomes: Outcome
) -> Iterator[str]:
    """Yield the findings of these checks on a node that have one of the `outcomes`, as text."""
    for finding in (check.of(node, cluster) for check in checks):
        if finding.outcome in outcomes:
            yield f"{finding.seen}: {finding.why}; {finding.fix}"


def show(
    nodes: Sequence[Observation], total: Sum | None, hearth: str, locks: Mapping[str, str]
) -> tuple[list[Line], dict[str, Any]]:
    """Return the lines to show, and the level of each node and of the all-reduce.

    `hearth` is the command for the same inventory, `locks` each node's `python_lock`.
    """
    verdicts = judge(nodes, total, hearth, locks)
    lines = table(nodes, verdicts, TABLE_WIDTH)
    below = remarks(nodes, total, why_no_sum(nodes) if total is None else "")
    lines += [(None, line) for line in below]
    levels = {name: advice.level for name, advice in verdicts.items()}
    failed = total is not None and bool(total.failure)
    if "fault" not in levels.values() and not failed:
        lines.append(("good", f"All {len(nodes)} nodes are verified."))
    return lines, {"levels": levels, "sum_failed": failed}


def remarks(nodes: Sequence[Observation], total: Sum | None, skipped: str) -> list[str]:
    """Return the lines below the table: all-reduce, latency, and differences between nodes.

    `skipped` is the reason if no all-reduce was tried.
    """
    lines = []
    if total and total.facts.get("seconds"):
        facts = total.facts
        lines.append(
            f"all-reduce over {len(facts['nodes'])} ranks: right, {facts['seconds'] * 1000:.0f} ms "
            f"for {facts['mebibytes']} MiB over {facts['over']}"
        )
    elif total and total.failure and total.culprit is None:
        lines.append(f"all-reduce: {total.failure}")
    elif skipped:
        lines.append(f"all-reduce: not tried, {skipped}")
    times = [ms for node in nodes for ms in node.talk.get("milliseconds", {}).values()]
    if times:
        lines.append(f"there and back between two nodes: {min(times):.2f} to {max(times):.2f} ms")
    usable = [node for node in nodes if node.usable]
    lines += _compilers(usable)
    without = [node.name for node in usable if not node.facts["cuda"]]
    if 0 < len(without) < len(usable):
        lines.append(
            f"{', '.join(without)} trains on the processor, so the gradients of all travel over "
            "gloo, not NCCL; leave it out if the others are faster alone"
        )
    elif any(node.facts["gpus"] for node in usable) and len(without) == len(usable):
        lines.append("no CUDA in this torch (python_lock: cpu): the GPUs are not used")
    return lines


def _compilers(nodes: Sequence[Observation]) -> list[str]:
    """Return a line on the nodes that have nvcc, if any, and whether it suits their torch."""
    having = [node for node in nodes if node.facts.get("nvcc")]
    if not having:
        return []
    parts = []
    for node in having:
        cuda, own = node.facts["cuda"], node.facts["nvcc"]
        fits = not cuda or cuda.partition(".")[0] == own.partition(".")[0]
        parts.append(f"{node.name} {own}" + ("" if fits else f" (extensions of torch need {cuda})"))
    lacking = [node.name for node in nodes if node not in having and node.facts["gpus"]]
    return [f"nvcc: {', '.join(parts)}" + (f"; none on {', '.join(lacking)}" if lacking else "")]


def table(
    nodes: Sequence[Observation], verdicts: Mapping[str, NodeVerdict], columns: int
) -> list[Line]:
    """Return the lines; if `columns` are too few, a second table of the machines follows below."""
    rows = [_TITLES]
    for node in nodes:
        rows.append((f"{MARKS[verdicts[node.name].level]} {node.name}", *_cells(node, nodes)))
    levels = {mark: level for level, mark in MARKS.items()}
    lines: list[Line] = [(levels.get(line[:1]), line) for line in fitted(rows, columns)]
    for node in nodes:
        verdict = verdicts[node.name]
        if verdict.text:
            text = wrapped(f"{node.name}: {verdict.text}", columns, "    ")
            lines += [(verdict.level, line) for line in text]
    return lines


def _cells(node: Observation, nodes: Sequence[Observation]) -> tuple[str, ...]:
    """Return the cells of a node behind its name."""
    facts = node.facts
    gpus = facts.get("gpus", [])
    memories = [gpu["memory_mib"] for gpu in gpus if gpu["memory_mib"]]
    return (
        str(node.rank),
        node.address,
        facts.get("interface") or "–",
        link_speed(link_mbit(node.name, nodes)),
        short_gpu(gpus) or "–",
        card_memory(min(memories)) if memories else "shared" if gpus else "–",
        gpus[0]["driver"] if gpus else "–",
        facts.get("torch") or "–",
    )
