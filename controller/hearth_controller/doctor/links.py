"""Checks of addresses, links and the paths between the nodes. Pure."""

from __future__ import annotations

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
from hearth_controller.doctor.judgement import (
    SLOW_MBIT,
    SLOW_MILLISECONDS,
    failed_calls,
    link_cure,
    link_mbit,
    peers_allow,
)
from hearth_controller.doctor.node import Cluster, ExaminedNode

GIGABITS = 2500
"""Up to this link speed, a card should reach at least half of its negotiated rate."""

_LOOPBACK = not_applicable("loopback: nothing leaves this computer")
_ALONE = not_applicable("there is no other node")


@check("address", "inspection")
def address(node: ExaminedNode, cluster: Cluster) -> Finding:
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
def duplicate(node: ExaminedNode, cluster: Cluster) -> Finding:
    """No other machine has the node's address.

    The nodes ask who claims it, which needs root, and know at which MAC they reach it. A node that
    does not answer may be one whose address another machine took.
    """
    if node.inspection and node.loopback:
        return _LOOPBACK
    views = {
        each.name: {**each.inspection["network"], **each.claims}
        for each in cluster.nodes
        if each.inspection
    }
    address = node.verify.address
    reached = not node.verify.gone and not failed_calls(node.verify, cluster.observations)[0]
    if twice := taken_twice(node.name, address, views, reached):
        return broken(
            f"{twice} have the address {address}",
            "what is meant for this node reaches the other",
            CURE,
        )
    asked = any(each.claims for each in cluster.nodes)
    if node.verify.gone or not (
        asked or any(address in view["neighbours"] for view in views.values())
    ):
        return not_checked(node.lacks("inspection") or node.rootless or "no other node has asked")
    return good("no other machine has it")


@check("link", "facts")
def link(node: ExaminedNode, cluster: Cluster) -> Finding:
    """The node's link reaches its expected bandwidth."""
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
def latency(node: ExaminedNode, cluster: Cluster) -> Finding:
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
def reach(node: ExaminedNode, cluster: Cluster) -> Finding:
    """Every other node reaches it over TCP."""
    if not cluster.others(node):
        return _ALONE
    deaf, _ = failed_calls(node.verify, cluster.observations)
    if deaf:
        return broken(
            f"from {', '.join(deaf)}: {next(iter(deaf.values()))}",
            "they cannot train together",
            f"{cluster.stage('firewall')}, or mend the way between them",
        )
    callers = [other.name for other in cluster.others(node) if other.verify.talk]
    if not callers:
        return not_checked("no other node could try")
    everybody = len(callers) == len(cluster.others(node))
    return good("from every other node" if everybody else f"from {', '.join(callers)}")


@check("MTU", "inspection")
def mtu(node: ExaminedNode, cluster: Cluster) -> Finding:
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
        if not path["full"] and path["told"]:
            return degraded(
                f"{path['told']} bytes to {peer}, and {card} has {own}",
                "every large packet is sent twice",
                f"give {card} of {node.name} an MTU of {path['told']}",
            )
        if not path["full"]:
            return broken(
                f"packets of {own} bytes do not arrive at {peer}",
                "small ones do, so that connections open and then hang",
                f"give {card} of {node.name}, {peer} and the switches between them the same MTU",
            )
    return good(f"{own} bytes")
