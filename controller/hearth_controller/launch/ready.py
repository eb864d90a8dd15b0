"""Make the nodes of a run ready: prepare them, choose those that train, write their specs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hearth.base.errors import LaunchError
from hearth.base.places import LIBRARIES
from hearth.config import in_steps, pinned
from hearth_controller.launch.answers import (
    LinkSpeeds,
    Preparation,
)
from hearth_controller.launch.checks import (
    device_of,
    gpus_of,
    idle_gpus,
    node_warnings,
)
from hearth_controller.launch.course import Course, nothing_started
from hearth_controller.launch.inspecting import measure_links
from hearth_controller.launch.planning import LaunchPlan
from hearth_controller.launch.prediction import ChosenNodes, NodeFacts, choose_nodes
from hearth_controller.launch.request import LaunchRequest
from hearth_controller.launch.spec import NodeRanks, job_script, node_specs
from hearth_controller.launch.stages import Played

SAME = [*LIBRARIES, "Hearth", "data", "model", "adapter", "shared"]
"""Facts that must be equal on all nodes."""

SCRIPT_GRACE = 60.0
"""Seconds that a script has to end."""


@dataclass(frozen=True)
class ReadyRun:
    """A run whose nodes are ready: the text of its `run.yml`, the specs by node, and its job."""

    request: LaunchRequest
    text: str
    specs: Mapping[str, dict[str, Any]]
    job: str = ""
    say: str = ""


def prepare(course: Course, plan: LaunchPlan) -> Played[ReadyRun]:
    """Prepare every node, measure ranks and links, and choose the nodes that train.

    Raises `LaunchError` if a node found anything, differs from the others, or if these nodes cannot
    train together.
    """
    request, nodes = plan.request, plan.nodes
    if plan.kept:
        prepared = {name: Preparation.from_facts(node.prepared) for name, node in nodes.items()}
        for name, node in nodes.items():
            course.results[name].append({"facts": node.prepared})
    else:
        prepared = yield from _prepare_nodes(course, plan)
    course.refuse(request.requested, idle_gpus(request, nodes, prepared), SAME)
    if course.site.check:
        return ReadyRun(request, request.text, {})
    first = next(iter(prepared.values()))
    revisions = (
        _common([getattr(its, of) for its in prepared.values()])
        for of in ("model_revision", "data_revision")
    )
    settled = replace(request, run=pinned(in_steps(request.training, first.steps), *revisions))
    text = [f"  {line}" for line in (*first.summary, *node_warnings(nodes, course.addresses))]
    ports = {} if plan.busy else {name: its.port for name, its in prepared.items()}
    links = yield from measure_links(course, "links", ports)
    with nothing_started():
        chosen = _choose(plan, prepared, links, first.steps.get("global_batch"))
        ranks = {
            name: NodeRanks(prepared[name].nproc, gpus_of(nodes[name].memory, prepared[name].gpus))
            for name in chosen.names
        }
        _check_shares(request, sum(its.count for its in ranks.values()))
    away = _describe_away(plan, chosen.names)
    return make_ready(
        course,
        replace(plan, request=settled),
        ranks,
        chosen.stop_grace,
        [*text, *filter(None, [chosen.say]), *away],
    )


def _prepare_nodes(course: Course, plan: LaunchPlan) -> Played[dict[str, Preparation]]:
    """Prepare model and data on every node, and measure its speed where that is needed."""
    request = plan.request
    specs = {
        name: {
            "fetch": True,
            "nproc": node.own["nproc"],
            # Where its owner or another run has a node, the speeds of an earlier run have to do.
            "measure": request.measures and plan.measures(name),
            "kept": request.measures,
            "address": course.addresses[name],
            "allowed": list(course.addresses.values()),
            "gpus": node.memory["gpus"],
        }
        for name, node in plan.nodes.items()
    }
    command = "hearth.node prepare"
    answers = yield from course.program("prepare", command, specs, request.text, hub_token="hub")
    return {name: Preparation.from_facts(facts) for name, facts in answers.items()}


def _common(revisions: list[str | None]) -> str | None:
    """Return the revision that all nodes have, or None.

    Two revisions can have the same files, and only the files matter to the ranks.
    """
    return revisions[0] if len(set(revisions)) == 1 else None


def _choose(
    plan: LaunchPlan,
    prepared: Mapping[str, Preparation],
    links: Mapping[str, LinkSpeeds],
    rows: int | None,
) -> ChosenNodes:
    """Choose the nodes that train; those of a run that waits for its turn were not measured."""
    request = plan.request
    facts = {
        name: NodeFacts(
            replace(its, ranks=()) if plan.busy else its,
            links.get(name, LinkSpeeds()),
            device_of(plan.nodes[name].memory, its.gpus),
        )
        for name, its in prepared.items()
    }
    chosen = choose_nodes(request, facts, rows)
    if plan.busy and request.measures:
        chosen = replace(chosen, say=f"{chosen.say}\n  {_not_measured(plan.busy)}")
    return chosen


def _not_measured(busy: Mapping[str, str]) -> str:
    """Return why nothing is known of the speed of a run that waits for its turn."""
    nodes_of: dict[str, list[str]] = {}
    for node, run in busy.items():
        nodes_of.setdefault(run, []).append(node)
    taken = "; ".join(f"{run} has {', '.join(nodes)}" for run, nodes in nodes_of.items())
    return (
        f"not measured, since {taken}: all of these nodes take part, and the run divides its "
        "rows by speeds that are kept or that it measures when it begins"
    )


def _check_shares(request: LaunchRequest, ranks: int) -> None:
    """Raise `LaunchError` unless `split` has a share for each rank.

    Ranks without a share are in no placement.
    """
    shares = request.shares
    if shares and not request.placed and len(shares) != ranks:
        raise LaunchError(
            f"split: {':'.join(map(str, shares))} has {len(shares)} shares, but the run has "
            f"{ranks} ranks; give one share per rank"
        )


def _describe_away(plan: LaunchPlan, names: list[str]) -> list[str]:
    """Return a line for each of the chosen nodes that is away, and one if all of them are."""
    if plan.request.options.queue:  # that says nothing of the time at which the run begins
        return []
    lines = [
        f"  AWAY NOW: {name} ({plan.nodes[name].away}); it joins when it lends again"
        for name in names
        if plan.nodes[name].away
    ]
    if len(lines) == len(names):
        lines.append("  All are away: the run begins when one of them lends.")
    return lines


def make_ready(
    course: Course,
    plan: LaunchPlan,
    ranks: Mapping[str, NodeRanks],
    stop_grace: float,
    text: list[str],
) -> ReadyRun:
    """Return the run with the spec of each node, and the script of its job under Slurm."""
    request, site = plan.request, course.site
    timeouts = {**site.timeouts, "stop_grace": stop_grace}
    specs = node_specs(
        request, course.addresses, plan.nodes, ranks, timeouts, bool(site.slurm_nodes)
    )
    specs = {name: spec | {"hearth": site.hearth} for name, spec in specs.items()}
    job = ""
    if site.slurm_nodes:
        known = plan.nodes[request.requested[0]].slurm_gpus
        gpus = {name: known.get(name, 0) if its.gpus else 0 for name, its in ranks.items()}
        options = [*site.slurm_options, *request.options.job_options]
        job = job_script(request.name, specs, site.slurm_nodes, gpus, options)
    return ReadyRun(request, request.text, specs, job, "\n".join(text))
