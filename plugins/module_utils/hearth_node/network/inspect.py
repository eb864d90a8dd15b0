"""Compare a machine's address with the request, and derive the change that corrects it.

Each function is one mode of the module `hearth_network`; none changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible.module_utils.hearth.base.nics import Nic, is_ipv4
from ansible.module_utils.hearth_node.changes.record import Journal, path_state
from ansible.module_utils.hearth_node.network import change, neighbours, plan
from ansible.module_utils.hearth_node.network.nics import manager_of

_MANAGED = ("networkd", "networkmanager")


@dataclass
class NetworkVerdict:
    """Findings, and the required change, if any.

    `goals` are the addresses of the changed node, as the controller finds it.
    """

    findings: list[str]
    nic: Nic | None = None
    wanted: plan.Wanted | None = None
    candidate: change.NetworkChange | None = None
    goals: list[str] = field(default_factory=list)


def verify(
    request: plan.AddressRequest, nics: Sequence[Nic], peers: Mapping[str, Sequence[str]]
) -> NetworkVerdict:
    """Return the problems with the present address; never a change.

    `peers` are the other nodes' addresses by name.
    """
    findings = plan.absent(nics, request)
    nic = next((each for each in nics if each.has(request.address)), None)
    if findings or nic is None:
        return NetworkVerdict(findings)
    if not nic.cable:
        return NetworkVerdict([plan.no_cable(nic)])
    if unclear := plan.ambiguous(nic, nics, request) + plan.other_mtu(nic, request.mtu):
        return NetworkVerdict(unclear)
    needed = [nic.gateway] if nic.gateway else []
    answers = neighbours.listen(nic, nics, request.address, needed, probes=2)
    there = neighbours.reachable(nic, nics, peers)
    missing = {name: addresses[0] for name, addresses in peers.items() if name not in there}
    lost = neighbours.cut_off(request.address, request.mtu, there) if request.mtu else {}
    return NetworkVerdict(
        plan.around(nic, request.address, nic.gateway, answers, {})
        + plan.silent(missing)
        + plan.cut(request.mtu, lost),
        nic,
    )


def static(
    request: plan.AddressRequest,
    nics: Sequence[Nic],
    peers: Mapping[str, Sequence[str]],
    *,
    force: bool,
) -> NetworkVerdict:
    """Return all reasons against setting the address, and the change that sets it.

    `peers` are the other nodes' addresses by name, the one that each is to have first. `force`
    drops the reasons that do not rule out a self-reverting change.
    """
    chosen, refusals = plan.choose(nics, request)
    nic = chosen or plan.carrier(nics, request.reached)
    if nic is None:
        return NetworkVerdict(refusals)
    manager = manager_of(nic)
    wanted = plan.settle(nic, manager, request)
    refusals += plan.wrong(nic, manager, request)
    apart = plan.apart(nic, request) and request.reached
    verdict = NetworkVerdict([], nic, wanted, goals=list(apart or [wanted.address]))
    if manager.kind in _MANAGED and is_ipv4(request.address):
        name = nic.name if chosen else request.interface or nic.name
        try:
            verdict.candidate = change.candidate(nic, manager, wanted, name)
        except change.Unable as error:
            verdict.findings += error.args
        done = verdict.candidate and not verdict.candidate.changes
        if done and chosen and not plan.not_in_force(nic, wanted):
            verdict.candidate = None
            return verdict
    if is_ipv4(request.address) and nic.cable:
        gateway = wanted.gateway if plan.near(wanted.gateway, wanted) else ""
        answers = neighbours.listen(nic, nics, request.address, [gateway] if gateway else [])
        refusals += plan.around(nic, request.address, gateway, answers, peers)
    if not force or verdict.candidate is None:
        verdict.findings = refusals + verdict.findings
    return verdict


def original(nics: Sequence[Nic]) -> NetworkVerdict:
    """Return the change that restores the NIC's setup from before Hearth, if Hearth changed it."""
    past, record = change.load_past(), Journal()
    entry = next(
        (each for each in record.entries() if past and each.path == past.candidate.target), None
    )
    if past is None or entry is None:
        return NetworkVerdict([])
    ours = past.candidate
    if entry.now != path_state(ours.target):
        return NetworkVerdict(
            [f"{ours.target} was changed since by another program; Hearth leaves it"]
        )
    nic = next((each for each in nics if each.name == ours.nic), None)
    if nic is None:
        return NetworkVerdict(
            [f"there is no NIC {ours.nic} any more; {ours.target} stays as it is"]
        )
    before = record.original(ours.target)
    return NetworkVerdict([], nic, candidate=change.backwards(ours, before and before.decode()))
