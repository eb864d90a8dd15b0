"""Bring the model and the data of a run to its nodes, before a launch or by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hearth_controller.launch.answers import Inspection, facts_of
from hearth_controller.launch.checks import on_one_computer
from hearth_controller.launch.course import Course, Site
from hearth_controller.launch.request import LaunchRequest
from hearth_controller.launch.stages import LaunchStage, NodeCall, Played, Stages, program
from hearth_controller.transfer.distribution import DataFile, Distribution, Transfer

_NOTHING = "Nothing was brought to any node."
_KEPT = "Everything that has arrived is kept; the same command goes on from there."


def distribution_of(
    request: LaunchRequest,
    course: Course,
    copies: Mapping[str, Mapping[str, Any]],
) -> Distribution:
    """Return the distribution of a run to the nodes that it was requested for."""
    return Distribution(
        request.training,
        request.data_files,
        {name: course.addresses[name] for name in request.requested},
        {name: copies[name] for name in request.requested if copies.get(name)},
        course.site.shared,
        request.shape.parameters if request.shape else 0,
        request.placed.parts if request.placed else {},
        course.site.direct,
        request.adapter_files,
    )


def planned_transfer(
    request: LaunchRequest, course: Course, nodes: Mapping[str, Inspection]
) -> Transfer:
    """Plan the transfers for a launch on the inspected nodes."""
    copies = {name: node.copies for name, node in nodes.items()}
    distribution = distribution_of(request, course, copies)
    # Nodes on one computer have one cache.
    if len(request.requested) > 1 and not on_one_computer(nodes):
        return distribution.plan()
    return distribution.alone()


def mark(course: Course, request: LaunchRequest) -> Played[None]:
    """Mark the folder that all nodes share; the first node needs the training code for it."""
    if not course.site.shared or request.files:
        return
    first = request.requested[0]
    code = NodeCall("hearth_workspace", {"source": course.site.training})
    spec = {"shared": course.site.shared}
    marks = program("hearth.transfer mark", spec, request.text)
    yield from course.stage("mark", {first: [code, marks]})


def bring(course: Course, request: LaunchRequest, transfer: Transfer) -> Played[None]:
    """Download once, send data files from here, and send the rest from node to node.

    Findings stay with their nodes; nothing more is downloaded or sent after one.
    """
    source, found = transfer.order.source, any(transfer.found.values())
    if transfer.fetches and not found:
        specs = {source: {"keys": list(transfer.fetches)}}
        command = "hearth.transfer fetch"
        yield from course.program("download", command, specs, request.text, hub_token="hub")
    found = found or bool(course.results[source] and not course.is_sound(source))
    if not found or len(transfer.copies) > 1:
        yield from course.stage("files", _copies(transfer.copies))
    if transfer.shares and not found:
        folder = transfer.shares[0].place.rpartition("/")[0]
        makes = NodeCall(
            "ansible.builtin.file", {"path": folder, "state": "directory", "mode": "0755"}
        )
        shares = [_copy(file, file.place, "0644") for file in transfer.shares]
        yield from course.stage("share", {source: [makes, *shares]})
        yield from course.stage("link", _links(transfer.links))
    if transfer.order.lacks and not found:
        yield from _relay(course, request, transfer)


def _copy(file: DataFile, place: str, mode: str) -> NodeCall:
    return NodeCall("ansible.builtin.copy", {"src": file.source, "dest": place, "mode": mode})


def _copies(copies: Mapping[str, Iterable[DataFile]]) -> dict[str, list[NodeCall]]:
    return {
        name: [_copy(file, file.place, "0600") for file in files if file.place]
        for name, files in copies.items()
    }


def _links(links: Mapping[str, Iterable[DataFile]]) -> dict[str, list[NodeCall]]:
    return {
        name: [
            NodeCall(
                "ansible.builtin.file",
                {"src": file.shared, "dest": file.place, "state": "link", "force": True},
            )
            for file in files
            if file.place
        ]
        for name, files in links.items()
    }


def _relay(course: Course, request: LaunchRequest, transfer: Transfer) -> Played[None]:
    """Send from node to node: each receives from the previous one, and relays."""
    order, call, distribution = transfer.order, course.site.call, transfer.of
    specs = {order.source: distribution.relay_spec(transfer, order.source, call, "")}
    command = "hearth.transfer offer"
    offers = yield from course.program("offer", command, specs, request.text, secret="key")
    offer, calls = offers[order.source], {}
    for name in order.lacks:
        wrong = distribution.room(transfer, name, offer.get("sizes"))
        if "digest" not in offer:  # the source reports its own findings
            wrong = wrong or [f"{order.source} does not send what this node lacks"]
        course.results[name].append({"findings": wrong})
        if not wrong:
            spec = distribution.relay_spec(transfer, name, call, offer["digest"])
            takes = program("hearth.transfer take", spec, request.text, secret="key")
            calls[name] = [replace(takes, follow={"chain": order.chain, "id": call})]
    if len(calls) == len(order.lacks):
        yield from course.stage("take", calls)


def distribute(request: LaunchRequest, site: Site) -> Stages:
    """Bring the model and the data of a run to its nodes, and compare the copies in the end.

    A node that cannot be reached is left out; a finding about any node stops all before the
    download. Raises `LaunchError` with the findings of all nodes.
    """
    course = Course(request, site)
    yield from mark(course, request)
    copies = yield from _inspect(course, request, "inspect")
    if any(result.get("findings") for of in course.results.values() for result in of):
        course.refuse(request.requested, then=_NOTHING, advises=False)
    distribution = distribution_of(request, course, copies)
    transfer = distribution.plan()
    lines = "\n".join(f"  {line}" for line in transfer.lines)
    brings = bool(transfer.order.source) and not site.check
    yield LaunchStage("plan", say=lines, result={"brings": brings and transfer.brings})
    found = dict(transfer.found)
    if brings:
        yield from bring(course, request, transfer)
    if not site.check and not any(found.values()) and all(map(course.is_sound, request.requested)):
        now = yield from _inspect(course, request, "prove")
        for name in request.requested:
            holds = now.get(name, {}).get("holds", {})
            facts = {key: value for key, value in holds.items() if value}
            missing = distribution.missing(holds)
            course.results[name].append({"facts": facts, "findings": missing})
    course.refuse(request.requested, found, ["model", "data", "shared"], _KEPT, advises=False)
    yield LaunchStage("done", say="" if site.check else distribution.describe())


def _inspect(
    course: Course, request: LaunchRequest, stage: str
) -> Played[dict[str, Mapping[str, Any]]]:
    """Inspect the copies of the nodes; return them by node."""
    calls = {}
    for name in request.requested:
        spec = {"copies": True, "address": course.addresses[name], "shared": course.site.shared}
        calls[name] = [NodeCall("hearth_inspect", {"spec": spec, "run_file": request.text})]
    answers = yield from course.stage(stage, calls)
    return {
        name: facts_of(results)["copies"]
        for name, results in answers.items()
        if facts_of(results).get("copies") and course.is_sound(name)
    }
