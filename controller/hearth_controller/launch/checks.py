"""Findings about the nodes of a run from their inspection, and the devices they compute on. Pure.

`memory` are the facts of a node from its inspection: its `gpus` as the driver lists them, whether
its torch has `cuda`, the NVIDIA `cards` on its bus by PCI id, whether `prime-select intel` has them
off (`prime_off`), and why its driver lists none (`trouble`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hearth.base.nvidia import ranks_of, short_gpu, usable_gpus
from hearth.base.text import counted
from hearth_controller.doctor.examine import warnings
from hearth_controller.doctor.links import locks_too_little
from hearth_controller.doctor.node import ExaminedNode, Observation
from hearth_controller.driver.cards import card
from hearth_controller.launch.answers import Inspection, LayerTimes, Preparation
from hearth_controller.launch.request import LaunchRequest

Findings = dict[str, list[str]]


def on_one_computer(nodes: Mapping[str, Inspection]) -> bool:
    """Return whether the nodes share one computer."""
    return any(node.own.get("one_computer") for node in nodes.values())


def idle_gpus(
    request: LaunchRequest,
    nodes: Mapping[str, Inspection],
    prepared: Mapping[str, Preparation] | None = None,
) -> Findings:
    """Return a finding for each node that would train on its processor beside an idle GPU.

    `cpu=on` takes them all, and so does a node's `python_lock: cpu`; on one computer alone
    scripts/setup chooses that by itself, so there it is not a person's word.
    """
    found = {}
    for name, node in nodes.items():
        meant = node.own.get("lock") == "cpu" and not node.own["one_computer"]
        if meant or request.options.cpu:
            continue
        its = (prepared or {}).get(name, Preparation())
        if finding := unused_gpu(node.memory) or unseen_gpu(node.memory, its.gpus):
            found[name] = [finding]
    return found


def unable_to_lend(request: LaunchRequest, nodes: Mapping[str, Inspection]) -> Findings:
    """Return a finding for each node with terms of lending that this run cannot heed."""
    if request.resident or not request.options.lend:
        return {}
    kind = "a script" if request.files else f"parallel={request.settings.parallel}"
    found = {}
    for name, node in nodes.items():
        terms = node.own.get("lend", {})
        given = [f"lend_{key}" for key in ("when", "hours", "command") if terms.get(key)]
        if given:
            found[name] = [
                f"{', '.join(given)}: the ranks of {kind} are launched together on all nodes "
                "or none, so that no node can leave for a while: -e lend=off keeps it for "
                "the whole run, or leave it out by -e nodes="
            ]
    return found


def closed_ports(
    addresses: Mapping[str, str],
    nodes: Mapping[str, Inspection],
    asked: Mapping[str, Mapping[str, Any]],
) -> Findings:
    """Return a finding for each node whose port another one could not reach.

    `asked` are the facts of `hearth.node ports` by the node that tried.
    """
    found = {}
    for name, address in addresses.items():
        failed = {caller: facts.get("failed", {}).get(name) for caller, facts in asked.items()}
        kept_out = {caller: why for caller, why in failed.items() if why}
        if kept_out:
            sources = ", ".join(addresses[caller] for caller in kept_out)
            kind = "ip6" if ":" in address else "ip"
            found[name] = [
                f"{', '.join(kept_out)} cannot connect to port {nodes[name].port} at "
                f"{address}: {next(iter(kept_out.values()))}. "
                "`hearth provision --tags firewall` opens ufw and firewalld to the nodes; "
                "rules of your own need one more on "
                f"{name}, such as `nft insert rule inet filter input {kind} saddr "
                f"'{{ {sources} }}' accept`"
            ]
    return found


def unlike_ranks(nodes: Mapping[str, Inspection], times: Mapping[str, LayerTimes]) -> list[str]:
    """Return a finding for each node that has timed its layers on another number of ranks.

    The driver's GPUs count for the memory and torch's for the speeds.
    """
    found = []
    for name, its in times.items():
        timed, listed = len(its.layers), ranks_of(nodes[name].memory, nodes[name].own["nproc"])
        if timed != listed:
            found.append(
                f"{name}: its driver lists GPUs for {counted(listed, 'rank')}, and "
                f"{counted(timed, 'rank')} timed a layer, by the GPUs that torch sees: "
                f"`hearth doctor` says why; hearth_nproc sets the ranks of {name}, and -e "
                "nodes= leaves it out"
            )
    return found


def node_warnings(nodes: Mapping[str, Inspection], addresses: Mapping[str, str]) -> list[str]:
    """Return warnings that stop no run: other uses of the machine, power limits, locked memory."""
    alone, lines = on_one_computer(nodes), []
    for name, node in nodes.items():
        limit = 0 if alone else node.own.get("power_limit", 0)
        examined = ExaminedNode(
            Observation(name, 0, addresses[name]), inspection=node.home, power_limit=limit
        )
        lines += [f"{name}: {warning}" for warning in warnings(examined)]
    for name, node in nodes.items():
        if node.rdma is not None:
            known = {"rdma": node.rdma, "lockable": node.lockable, **node.memory}
            if hint := locks_too_little(known):
                lines.append(f"{name}: {hint}")
    return lines


_TAKEN = "; -e cpu=on trains on its processor all the same"


def unused_gpu(memory: Mapping[str, Any]) -> str:
    """Return the finding on a GPU of a node that torch could train on and will not, or ''."""
    if memory["gpus"] and memory["cuda"]:
        return ""
    if memory["prime_off"]:
        return (
            "`prime-select intel` takes its NVIDIA GPU off the bus: sudo prime-select on-demand "
            f"there, then restart it{_TAKEN}"
        )
    names = ", ".join(str(each) for each in map(card, memory["cards"]) if each.trains)
    if not names:
        return ""
    if not memory["gpus"]:
        return (
            f"{names} is on its bus, and its driver does not answer ({memory['trouble']}): "
            f"`hearth provision --tags driver,python` mends that{_TAKEN}"
        )
    return (
        f"{names} answers, and the torch of its environment is built without CUDA: "
        f"`hearth provision --tags python` mends that{_TAKEN}"
    )


def unseen_gpu(memory: Mapping[str, Any], torch_gpus: int | None) -> str:
    """Return the finding on a GPU that the driver lists and torch does not see, or ''."""
    if not (memory["gpus"] and memory["cuda"]) or torch_gpus != 0:
        return ""
    return (
        f"its driver lists {short_gpu(memory['gpus'])}, and torch sees no GPU there: "
        f"`hearth doctor` says why{_TAKEN}"
    )


def gpus_of(memory: Mapping[str, Any], torch_gpus: int | None = None) -> int:
    """Return the number of GPUs that a node computes on, 0 for its processor."""
    return usable_gpus(memory) if torch_gpus != 0 else 0


def device_of(memory: Mapping[str, Any], torch_gpus: int | None = None) -> str:
    """Return the device of a node as text: its GPUs, or `processor` with any GPUs left idle."""
    if gpus_of(memory, torch_gpus):
        return short_gpu(memory["gpus"])
    idle = short_gpu(memory["gpus"]) or short_gpu(
        [{"name": each.name} for each in map(card, memory["cards"]) if each.trains]
    )
    return f"processor ({idle} idle)" if idle else "processor"
