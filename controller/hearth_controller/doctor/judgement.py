"""Judge a verified cluster: each node is fine, or gets one piece of advice. No I/O.

Faults are found in the order in which they must be repaired, so only the first is shown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from hearth.base.nvidia import short_gpu, unsupported_gpus
from hearth.base.systems import install_command
from hearth.base.taken_address import CURE, taken_twice

Level = Literal["good", "advice", "fault"]

SLOW_MBIT = 200.0
"""A wired link below this has a 100 Mbit/s cable or port: hardly any card is that old."""

LOCKED = 1 << 30
"""Bytes that a run must be able to lock for NCCL's buffers on an RDMA card, with some to spare."""

SLOW_MILLISECONDS = 5.0


@dataclass(frozen=True)
class Observation:
    """Observations of a node. `gone` is the reason if the node could not be examined.

    `facts` are those of `hearth.node.facts`, `talk` those of `hearth.node.links`.
    """

    name: str
    rank: int
    address: str
    gone: str = ""
    findings: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    talk: Mapping[str, Any] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether the node can take part in anything."""
        return not self.gone and not self.findings and bool(self.facts)


@dataclass(frozen=True)
class Sum:
    """Result of the all-reduce: the facts of rank 0, or the node that failed and the reason."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    culprit: str | None = None
    failure: str = ""


@dataclass(frozen=True)
class Advice:
    """Verdict on a node, and the action to take if it is not good."""

    level: Level
    text: str = ""


def judge(
    nodes: Sequence[Observation], total: Sum | None, provision: str, lock: Mapping[str, str]
) -> dict[str, Advice]:
    """Return the advice for each node.

    `total` is None if no all-reduce was tried; `provision` is the command that provisions these
    nodes, `lock` each node's `python_lock` (`cpu` means that no GPU is to be used).
    """
    verdicts = {}
    for node in nodes:
        faults = (
            *_taken_twice(node, nodes),
            *_own_faults(node, provision),
            *_common_faults(node, nodes, total, provision),
        )
        hints = _hints(node, nodes, lock.get(node.name, "auto"))
        found = next(iter(faults), None)
        hint = next(iter(hints), None)
        if found:
            verdicts[node.name] = Advice("fault", found)
        else:
            verdicts[node.name] = Advice("advice", hint) if hint else Advice("good")
    return verdicts


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


def link_mbit(name: str, nodes: Sequence[Observation]) -> float | None:
    """Return the Mbit/s of a node's own link: the best with any peer, in the slower direction.

    A peer's slow cable does not count against the node, as long as another peer is faster.
    """
    sent = [
        mbit for node in nodes if node.name == name for mbit in node.talk.get("mbit", {}).values()
    ]
    received = [node.talk["mbit"][name] for node in nodes if name in node.talk.get("mbit", {})]
    best = [max(way) for way in (sent, received) if way]
    return min(best) if best else None


def peers_allow(name: str, nodes: Sequence[Observation]) -> float:
    """Return the highest nominal Mbit/s among the cards of a node's measured peers.

    A Wi-Fi card counts as 0, since it guarantees nothing; a card with unknown negotiated speed
    counts as infinite.
    """
    peers = [
        node.facts
        for node in nodes
        if node.facts
        and any(
            {name, node.name} == {other.name, peer}
            for other in nodes
            for peer in other.talk.get("mbit", {})
        )
    ]
    allowed = [0.0 if peer["wireless"] else peer["nic_mbit"] or math.inf for peer in peers]
    return max(allowed, default=math.inf)


def link_cure(node: Observation, nodes: Sequence[Observation]) -> str:
    """Return the cure of a node's slow link, '' if the link is not slow by the node's own fault."""
    mbit, own = link_mbit(node.name, nodes), node.facts["nic_mbit"] or 0
    if mbit is None or mbit >= SLOW_MBIT:
        return ""
    if node.facts["wireless"]:
        return "a cable would be several times faster"
    if own > SLOW_MBIT >= peers_allow(node.name, nodes):
        return ""  # its link is slow because no peer has a faster one
    if own > SLOW_MBIT:
        return f"its card negotiated {own} Mbit/s: look at the switch and the ports behind it"
    return "take a Cat 5e cable and a gigabit port"


def failed_calls(node: Observation, nodes: Sequence[Observation]) -> tuple[dict[str, str], int]:
    """Return by node why it could not reach this one, and the number of nodes that tried."""
    callers = [other for other in nodes if other.talk and other.name != node.name]
    failed = {each.name: each.talk["failed"].get(node.name) for each in callers}
    return {name: why for name, why in failed.items() if why}, len(callers)


def _taken_twice(node: Observation, nodes: Sequence[Observation]) -> Iterator[str]:
    """Yield the fault of a node whose address another machine has."""
    views = {each.name: each.facts["network"] for each in nodes if "network" in each.facts}
    reached = not node.gone and not failed_calls(node, nodes)[0]
    if twice := taken_twice(node.name, node.address, views, reached):
        yield f"{twice} have the address {node.address}: {CURE}"


def _own_faults(node: Observation, provision: str) -> Iterator[str]:
    """Yield the faults of a node by itself."""
    if node.gone:
        yield node.gone
        return
    yield from node.findings
    facts = node.facts
    if not facts:
        yield "it did not answer what it is; -v shows more"
        return
    if facts["cards"] and not facts["gpus"]:
        yield f"its NVIDIA driver does not answer: {provision} --tags driver"
    if facts["cuda"] and facts["gpus"]:
        for gpu in unsupported_gpus(facts):
            yield (
                f"this torch ({facts['torch']}) has no code for the {short_gpu([gpu])} "
                f"(compute capability {gpu['capability']}): take another card, or let the node "
                "train on its processor with python_lock: cpu"
            )
        if not facts["devices"]:
            yield f"torch cannot use its GPU: {provision} --tags driver,python, then reboot it"
        if lacking := facts["build_packages"]:
            yield (
                "no C compiler, or no headers of Python, with which Triton builds the GPU's "
                f"kernels: {provision} --tags python, or there {install_command(lacking)}"
            )


def _common_faults(
    node: Observation, nodes: Sequence[Observation], total: Sum | None, provision: str
) -> Iterator[str]:
    """Yield the faults between a node and the others."""
    deaf, callers = failed_calls(node, nodes)
    if deaf:
        why = next(iter(deaf.values()))
        who = "every node" if len(deaf) == callers > 1 else ", ".join(deaf)
        yield (
            f"{who} → {node.name}: {why}; {provision} --tags firewall lets the cluster in where "
            f"{node.name}'s own firewall keeps it out"
        )
    for what, here, usual in differing(node, nodes):
        yield f"{what} is {here} here and {usual} on the others: {provision} --tags python"
    if total and total.culprit == node.name:
        yield f"the all-reduce failed here: {total.failure}"
    if total and node.name in total.facts.get("wrong", ()):
        yield "its sum in the all-reduce was wrong: test its memory and its network card"


def differing(node: Observation, nodes: Sequence[Observation]) -> Iterator[tuple[str, str, str]]:
    """Yield the versions in which a node differs from most others of its kind.

    Each item is (software, the node's version, the others' version).
    """
    # Of the packages that the inventory adds, those that other nodes have, too.
    added = sorted(node.facts.get("added", {}))
    for what, key, on_gpus in (
        # Without its build tag, in which CPU and GPU nodes differ.
        ("torch", lambda facts: str(facts["torch"]).partition("+")[0], False),
        ("Python", _python_release, False),
        ("CUDA", lambda facts: facts["cuda"], True),
        ("NCCL", lambda facts: facts["nccl"], True),
        *((name, partial(_added, name), False) for name in added),
    ):
        alike = [each for each in nodes if each.usable and (each.facts["cuda"] or not on_gpus)]
        alike = [each for each in alike if what not in added or what in each.facts.get("added", {})]
        if node not in alike:
            continue
        # On a tie the version of the lowest rank wins.
        usual = Counter(key(other.facts) for other in alike).most_common(1)[0][0]
        if key(node.facts) != usual:
            yield what, str(key(node.facts)), str(usual)


def _added(name: str, facts: Mapping[str, Any]) -> str:
    return facts["added"][name]


def _python_release(facts: Mapping[str, Any]) -> str:
    return ".".join(str(facts["python"]).split(".")[:2])


def _hints(node: Observation, nodes: Sequence[Observation], lock: str) -> Iterator[str]:
    """Yield possible improvements for a node on which training works."""
    if not node.usable:
        return
    facts = node.facts
    if cure := link_cure(node, nodes):
        way = "Wi-Fi" if facts["wireless"] else "a cable"
        yield f"{link_mbit(node.name, nodes):.0f} Mbit/s over {way}: {cure}"
    far = [ms for ms in node.talk.get("milliseconds", {}).values() if ms > SLOW_MILLISECONDS]
    if far and len(far) == len(node.talk["milliseconds"]):
        yield f"{min(far):.0f} ms to its nearest peer: is that path Wi-Fi or a tunnel?"
    if hint := locks_too_little(facts):
        yield hint
    if facts["gpus"] and not facts["cuda"] and lock != "cpu":
        yield "no CUDA in this torch, so its GPU is idle: set python_lock: gpu and provision again"


def locks_too_little(facts: Mapping[str, Any]) -> str:
    """Return the advice for a node on which NCCL may not lock the memory for its RDMA card, or ''.

    `facts` are `rdma`, `cuda` and `lockable` as of `hearth.node.facts`.
    """
    lockable = facts["lockable"]
    if not facts["rdma"] or not facts["cuda"] or lockable is None or lockable >= LOCKED:
        return ""
    return (
        f"a run may lock {lockable >> 20} MiB of memory, too little for NCCL over RoCE or "
        "InfiniBand: `sudo systemctl edit user@.service`, add [Service] and "
        "LimitMEMLOCK=infinity, then restart the machine"
    )


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
