"""Plan a launch: the model's fit, the transfers, and each node's layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hearth.base.errors import LaunchError
from hearth.config import in_precision
from hearth.config.shape import shape_of
from hearth.fit.capacity import automatic_precision
from hearth_controller.launch.answers import (
    Inspection,
    LayerTimes,
    LinkSpeeds,
)
from hearth_controller.launch.bring import planned_transfer
from hearth_controller.launch.checks import (
    Findings,
    device_of,
    idle_gpus,
    unable_to_lend,
    unlike_ranks,
)
from hearth_controller.launch.course import Course, nothing_started
from hearth_controller.launch.fit import check_fit, rooms_of, shape_of_run
from hearth_controller.launch.inspecting import measure_links
from hearth_controller.launch.placing import measured_node, place_run
from hearth_controller.launch.prediction import left_behind
from hearth_controller.launch.request import LaunchRequest
from hearth_controller.launch.stages import LaunchStage, Played
from hearth_controller.transfer.distribution import Transfer


@dataclass(frozen=True)
class LaunchPlan:
    """A run after its nodes were inspected.

    Attributes:
        request: with `parallel=auto` resolved, and with its layers placed once that is `placed`.
        found: findings by node.
        kept: whether all nodes are prepared since an earlier run with the same inputs.
    """

    request: LaunchRequest
    nodes: Mapping[str, Inspection]
    found: Findings
    transfer: Transfer | None = None
    say: str = ""
    kept: bool = False
    placed: bool = False

    @property
    def busy(self) -> dict[str, str]:
        """The run that has each node, where this one has to wait for its turn."""
        return {name: node.busy for name, node in self.nodes.items() if node.busy}

    def measures(self, node: str) -> bool:
        """Return whether a node can be measured now: no run has any, and its owner not this one."""
        return not self.busy and not self.nodes[node].away


def plan_launch(
    course: Course, request: LaunchRequest, nodes: Mapping[str, Inspection], closed: Findings
) -> LaunchPlan:
    """Decide whether the model fits, whole or by layers, and plan the transfers."""
    names = list(request.requested)
    count = f"{len(names)} node{'s' * (len(names) > 1)}"
    text = [f"{request.name}: {request.title}, {count} ({', '.join(names)})"]
    transfer, of_model = None, []
    if not request.files:
        if request.training.start:
            text.append(f"on top of {request.training.start}")
        verdict = check_fit(request, {name: _with_room(node) for name, node in nodes.items()})
        if verdict.parallel != request.settings.parallel:
            request = replace(request.with_parallel(verdict.parallel), whole_on=verdict.whole_on)
        text += verdict.lines
        transfer = planned_transfer(request, course, nodes)
        of_model = [verdict.findings]
        if request.divided:  # a node needs its layers only, once placed
            request, said = _in_one_precision(request, nodes)
            text += said
        else:
            text += transfer.lines
            of_model.append(transfer.found)
    found: Findings = {}
    own = [idle_gpus(request, nodes), unable_to_lend(request, nodes)]
    for name, findings in ((*each,) for of in (*own, closed, *of_model) for each in of.items()):
        if findings:
            found[name] = [*found.get(name, []), *findings]
    # A script has none, and the layers of an earlier run were others.
    whole = not request.files and not request.divided
    kept = whole and all(name in nodes and nodes[name].prepared for name in names)
    say = "\n".join(f"  {line.strip()}" for line in text)
    return LaunchPlan(request, nodes, found, transfer, say, kept, placed=not request.divided)


def _with_room(node: Inspection) -> Inspection:
    """Return a node with the memory that is free once the run there has ended."""
    if not node.busy:
        return node
    return replace(node, memory={**node.memory, "free_mib": node.memory["total_mib"]})


def _in_one_precision(
    request: LaunchRequest, nodes: Mapping[str, Inspection]
) -> tuple[LaunchRequest, list[str]]:
    """Return the run in the precision that all of its nodes have, and a line about it.

    Else each node would time its layers, and count their bytes, in the one that it prefers. A
    resumed run has the one that it began with.
    """
    rooms = [room for each in rooms_of(nodes).values() for room in each]
    alike = len({automatic_precision([room]) for room in rooms}) < 2
    if alike or request.settings.precision != "auto" or request.resumes:
        return request, []
    chosen = automatic_precision(rooms)
    settled = replace(request, run=in_precision(request.training, chosen))
    return settled, [f"precision=auto: {chosen}, which all of these nodes have"]


def place_layers(course: Course, plan: LaunchPlan) -> Played[LaunchPlan]:
    """Place the layers of the model over the nodes, by the speed of each and by their links.

    Where a node is busy or away and was never measured, or the sizes of the model are not known
    before it is there, nothing is placed: then the ranks do it when they begin.

    Raises `LaunchError` if the model fits no placement, a stage no disk, a node has timed its
    layers on other ranks than it was found to have, or a run would go on without the node that
    has its newest checkpoint.
    """
    if not plan.request.divided or course.site.check:
        return plan
    request, nodes = plan.request, plan.nodes
    config = yield from _read_sizes(course, request)
    times, links = yield from _time_layers(course, plan, config) if config else ({}, {})
    course.refuse(request.requested)
    shape = shape_of_run(request, nodes) or shape_of(config)
    if not all(its.layers for its in times.values()) or not times:
        say = (
            "  parallel=pipeline: not every node can be measured now, so the ranks measure their "
            "layers and place them when they begin, as if the links took no time"
        )
        brings = bool(plan.transfer and plan.transfer.brings)
        yield LaunchStage("placed", say=say if config else "", result={"brings": brings})
        return plan
    with nothing_started():
        if shape is None:
            raise LaunchError(
                f"parallel=pipeline: the sizes of {request.training.source.name} "
                f"({config.get('model_type', 'of an unknown kind')}) are not known, so its layers "
                "cannot be placed; take parallel=ddp"
            )
        if unlike := unlike_ranks(nodes, times):
            raise LaunchError(*unlike)
        rooms = rooms_of(
            {name: _with_room(node) for name, node in nodes.items()},
            request.settings.memory_limit,
        )
        placing = place_run(
            request,
            shape,
            {
                name: measured_node(
                    times[name],
                    rooms[name],
                    links.get(name, LinkSpeeds()),
                    device_of(nodes[name].memory),
                )
                for name in request.requested
            },
        )
        placed = placing.request
        if request.resumes:
            reached = {name: its.checkpoint for name, its in times.items()}
            chosen, recorded = placed.requested, request.recorded
            if behind := left_behind(request.name, chosen, reached, recorded):
                raise LaunchError(*behind)
        own = {name: nodes[name] for name in placed.requested}
        transfer = planned_transfer(placed, course, own)
        if lacking := [
            f"{name}: {finding}" for name, said in transfer.found.items() for finding in said
        ]:
            raise LaunchError(*lacking)
    say = "\n".join([placing.say, *(f"  {line}" for line in transfer.lines)])
    yield LaunchStage("placed", say=say, result={"brings": transfer.brings})
    return replace(plan, request=placed, nodes=own, transfer=transfer, placed=True)


def _read_sizes(course: Course, request: LaunchRequest) -> Played[Mapping[str, Any]]:
    """Return the config.json of the model, of the first node that knows it."""
    specs = {name: {"hub": not rank} for rank, name in enumerate(request.requested)}
    command = "hearth.node config"
    answers = yield from course.program("sizes", command, specs, request.text, hub_token="hub")
    return next((facts["config"] for facts in answers.values() if facts.get("config")), {})


def _time_layers(
    course: Course, plan: LaunchPlan, config: Mapping[str, Any]
) -> Played[tuple[dict[str, LayerTimes], dict[str, LinkSpeeds]]]:
    """Measure how fast each node computes a layer, and the links between those that did."""
    specs = {
        name: {
            "config": config,
            "measure": plan.measures(name),
            "nproc": node.own["nproc"],
            "address": course.addresses[name],
            "allowed": list(course.addresses.values()),
        }
        for name, node in plan.nodes.items()
    }
    text = plan.request.text
    answers = yield from course.program("layers", "hearth.node layers", specs, text)
    times = {name: LayerTimes.from_facts(facts) for name, facts in answers.items()}
    ports = {} if plan.busy else {name: its.port for name, its in times.items()}
    links = yield from measure_links(course, "layer links", ports)
    return times, links
