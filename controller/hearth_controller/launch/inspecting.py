"""The first stages of a launch: inspect the nodes, test their ports, measure their links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hearth_controller.launch.answers import (
    Inspection,
    LinkSpeeds,
)
from hearth_controller.launch.checks import (
    Findings,
    closed_ports,
    on_one_computer,
)
from hearth_controller.launch.course import Course
from hearth_controller.launch.request import LaunchRequest
from hearth_controller.launch.stages import NodeCall, Played, program


def inspect(course: Course, request: LaunchRequest) -> Played[dict[str, Inspection]]:
    """Bring the training code, and inspect every node; return those that answered."""
    calls, common = {}, {"source": course.site.training, "run_file": request.text}
    for name in request.requested:
        first = name == request.requested[0]
        look = common | {"spec": _inspection_spec(course, request, name, first)}
        calls[name] = [NodeCall("hearth_inspect", look, {"hub_token": "hub"})]
        if course.site.notifies:
            calls[name].append(program("hearth.notify check", {}, secret="notify"))
        if first and request.afterwards:
            calls[name].append(program("hearth.after check", {}, request.text, hub_token="hub"))
    answers = yield from course.stage("inspect", calls)
    return {
        name: Inspection.from_facts(facts)
        for name, results in answers.items()
        if (facts := results[0].get("facts"))
    }


def _inspection_spec(
    course: Course, request: LaunchRequest, name: str, first: bool
) -> dict[str, Any]:
    """Return the spec of `hearth.node inspect` for a node."""
    site, scripted = course.site, bool(request.files)
    slurm: dict[str, Any] = {}
    if site.slurm_nodes:
        asks = first and not site.check  # rank 0's node asks Slurm for such a job
        slurm = {
            "own": site.slurm_nodes[name],
            "options": [*site.slurm_options, *request.options.job_options],
            "nodes": {node: site.slurm_nodes[node] for node in request.requested} if asks else {},
        }
    # The sizes of a model that this computer does not know: any node may have it, and one of them
    # asks the Hub.
    unknown = not (scripted or request.shape or site.check)
    return {
        "run": request.name,
        "address": course.addresses[name],
        "port": request.options.meeting_port,
        "queue": bool(request.options.queue),
        "copies": not scripted,
        "shared": site.shared if len(request.requested) > 1 else "",
        "shape": ("hub" if first else "here") if unknown else "",
        "slurm": slurm,
        "kept": not scripted and not site.check,
        "measure": not scripted and request.measures,
        "lends": request.lends,
        "allowed": list(course.addresses.values()),
    }


def try_ports(
    course: Course, request: LaunchRequest, nodes: Mapping[str, Inspection]
) -> Played[Findings]:
    """Have each node try the ports of the others; return a finding for each closed one."""
    ports = {name: node.port for name, node in nodes.items() if node.port is not None}
    if on_one_computer(nodes) or len(ports) < 2:  # no firewall is in between
        return {}
    peers = _peers(course, ports)
    specs = {name: {"own": name, "peers": peers} for name in ports}
    asked = yield from course.program("ports", "hearth.node ports", specs)
    return closed_ports(course.addresses, nodes, asked)


def _peers(course: Course, ports: Mapping[str, int | None]) -> list[dict[str, Any]]:
    """Return the nodes whose ports others can reach, if there are at least two."""
    peers = [
        {"name": name, "address": course.addresses[name], "port": port}
        for name, port in ports.items()
        if port is not None
    ]
    return peers if len(peers) > 1 else []


def measure_links(
    course: Course, stage: str, ports: Mapping[str, int | None]
) -> Played[dict[str, LinkSpeeds]]:
    """Measure the links between the nodes that answer at a port; return the speeds by node."""
    peers = _peers(course, ports)
    names = [peer["name"] for peer in peers]
    specs = {name: {"own": name, "peers": peers, "speed": True} for name in names}
    answers = yield from course.program(stage, "hearth.node talk", specs)
    return {name: LinkSpeeds.from_facts(facts) for name, facts in answers.items()}
