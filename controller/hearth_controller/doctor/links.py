"""Checks of addresses, links and the paths between the nodes. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hearth.base.taken_address import CURE, taken_twice
from hearth.base.text import link_speed
from hearth_controller.doctor.finding import (
    Finding,
    broken,
    check,
    degraded,
    good,
    not_applicable,
    not_checked,
)
from hearth_controller.doctor.node import ExaminedNode, NodeGroup, Observation

GIGABITS = 2500
"""Up to this link speed, a card should reach at least half of its negotiated rate."""

SLOW_MBIT = 200.0
"""A wired link below this has a 100 Mbit/s cable or port: hardly any card is that old."""

LOCKED = 1 << 30
"""Bytes that a run must be able to lock for NCCL's buffers on an RDMA card, with some to spare."""

SLOW_MILLISECONDS = 5.0


_LOOPBACK = not_applicable("loopback: nothing leaves this computer")
_ALONE = not_applicable("there is no other node")


@check("address", "inspection")
def address(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The machine has its cluster address."""
    card = node.inspection["card"]["name"]
    if card:
        return good(f"{node.verify.address} on {card}")
    return broken(
        f"{node.verify.address} is on no network card",
        "the other nodes do not find it",
        cluster.stage("network"),
    )


@check("duplicate")
def duplicate(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """No other machine has the node's address.

    The nodes ask who claims it, which needs root, and know the MAC that they reach. Another machine
    may have the address of a node that does not answer.
    """
    if node.inspection and node.loopback:
        return _LOOPBACK
    views = {each.name: each.network for each in cluster.nodes if each.network}
    address = node.verify.address
    reached = not node.verify.gone and not failed_calls(node.verify, cluster.observations)[0]
    if twice := taken_twice(node.name, address, views, reached):
        return broken(
            f"{twice} have the address {address}",
            "traffic for this node reaches the other machine",
            CURE,
        )
    asked = any(each.claims for each in cluster.nodes)
    if node.verify.gone or not (
        asked or any(address in view["neighbours"] for view in views.values())
    ):
        return not_checked(node.lacks("inspection") or node.rootless or "no other node has asked")
    return good("no other machine has it")


@check("link", "facts")
def link(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The link has the speed that both cards can.

    Below 200 Mbit/s over a cable is broken, over Wi-Fi degraded. In a run, it must delay no node.
    """
    mbit, facts = link_mbit(node.name, cluster.observations), node.facts
    if facts["interface"] == "lo":
        return _LOOPBACK
    if not cluster.others(node):
        return _ALONE
    if slow := node.slow_links:
        own = slow.hops == () or any(node.name in hop for hop in slow.hops)
        seen = f"{slow.links}, in run {node.busy}"
        if own:
            return degraded(seen, f"the exchange takes {slow.part:.0%} of a step", slow.advised)
    if mbit is None:
        busy = next((each.busy for each in cluster.nodes if each.busy), "")
        return not_checked(f"run {busy} is under way" if busy else "no peer answered")
    seen = f"{link_speed(mbit)} on {facts['interface']}"
    slow = "every step waits for the slowest link"
    cure = link_cure(node.verify, cluster.observations)
    if facts["wireless"]:
        return degraded(f"{seen}, Wi-Fi", slow, cure) if cure else good(f"{seen}, Wi-Fi")
    if cure:
        return broken(f"{seen}, over a cable", slow, cure)
    if mbit < SLOW_MBIT:
        return good(f"{seen}, as much as the links of its peers carry")
    own = facts["nic_mbit"] or 0
    if mbit < min(own, peers_allow(node.name, cluster.observations)) / 2 and own <= GIGABITS:
        return degraded(
            f"{seen}, and the card negotiated {own} Mbit/s",
            slow,
            "look at what else uses the network, or at the switch",
        )
    return good(seen)


@check("latency", "facts")
def latency(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """Its nearest peer answers quickly."""
    times = node.verify.talk.get("milliseconds", {})
    if not cluster.others(node):
        return _ALONE
    if not times:
        return not_checked("no peer answered")
    least, most = min(times.values()), max(times.values())
    if least > SLOW_MILLISECONDS:
        return degraded(
            f"{least:.0f} ms to its nearest peer",
            "each exchange waits that long, several times a step",
            "leave Wi-Fi or a tunnel out of the way between them",
        )
    return good(f"{least:.2f} to {most:.2f} ms")


@check("reach", "facts")
def reach(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """Every other node reaches it over TCP."""
    if not cluster.others(node):
        return _ALONE
    deaf, _ = failed_calls(node.verify, cluster.observations)
    if deaf:
        return broken(
            f"{', '.join(deaf)} → {node.name}: {next(iter(deaf.values()))}",
            "they cannot train together",
            f"{cluster.stage('firewall')}, or mend the way between them",
        )
    callers = [other.name for other in cluster.others(node) if other.verify.talk]
    if not callers:
        return not_checked("no other node could try")
    everybody = len(callers) == len(cluster.others(node))
    return good("from every other node" if everybody else f"from {', '.join(callers)}")


@check("MTU", "inspection")
def mtu(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """Packets of the card's full MTU arrive whole at every peer."""
    if node.loopback:
        return _LOOPBACK
    if not cluster.others(node):
        return _ALONE
    own, paths = node.inspection["card"]["mtu"], node.inspection["paths"]
    card = node.inspection["card"]["name"]
    answered = {name: path for name, path in paths.items() if path["small"]}
    if not answered:
        return not_checked("no ping here" if not paths else "no peer answers ping")
    for peer, path in answered.items():
        if not path["full"] and path["mtu"]:
            return degraded(
                f"{path['mtu']} bytes to {peer}, and {card} has {own}",
                "every large packet is sent twice",
                f"give {card} of {node.name} an MTU of {path['mtu']}",
            )
        if not path["full"]:
            return broken(
                f"packets of {own} bytes do not arrive at {peer}",
                "small ones do, so that connections open and then hang",
                f"give {card} of {node.name}, {peer} and the switches between them the same MTU",
            )
    return good(f"{own} bytes")


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


def locks_too_little(facts: Mapping[str, Any]) -> str:
    """Return the advice for a node that lets NCCL lock too little memory for its RDMA card, or ''.

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
