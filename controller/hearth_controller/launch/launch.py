"""The launch of a run: inspect, plan, place, bring, prepare, choose, start.

Each function below plays some stages on the nodes, and decides from their answers. Everything that
stands against the run is found before it starts, and nothing of a launch outlives it but the run.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hearth.base.errors import LaunchError
from hearth.base.nvidia import ranks_of
from hearth.base.places import LIBRARIES
from hearth.config import in_precision, in_steps, pinned
from hearth.config.shape import shape_of
from hearth.fit.capacity import automatic_precision
from hearth.node.preview import lines, of_answer
from hearth_controller.base.screen import TABLE_WIDTH
from hearth_controller.doctor.message import message
from hearth_controller.launch.alternatives import measured_node
from hearth_controller.launch.answers import (
    Inspection,
    LayerTimes,
    LinkSpeeds,
    Preparation,
    facts_of,
)
from hearth_controller.launch.asked import LaunchRequest
from hearth_controller.launch.bring import bring, mark, planned_transfer
from hearth_controller.launch.checks import (
    Findings,
    closed_ports,
    idle_gpus,
    node_warnings,
    on_one_computer,
    unable_to_lend,
    unlike_ranks,
)
from hearth_controller.launch.course import NOTHING, Course, Site, nothing_started
from hearth_controller.launch.devices import device_of, gpus_of
from hearth_controller.launch.fit import check_fit, rooms_of, shape_of_run
from hearth_controller.launch.job import job_script
from hearth_controller.launch.placing import place_run
from hearth_controller.launch.prediction import ChosenNodes, NodeFacts, choose_nodes
from hearth_controller.launch.resume import left_behind
from hearth_controller.launch.spec import NodeRanks, node_specs
from hearth_controller.launch.stages import Answers, LaunchStage, NodeCall, Stages, program
from hearth_controller.runs.collect import forget, keep
from hearth_controller.transfer.distribution import Distribution, Transfer

_SAME = [*LIBRARIES, "Hearth", "data", "model", "shared"]
"""Facts that must be equal on all nodes."""

_SCRIPT_GRACE = 60.0
"""Seconds that a script has to end."""


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
    distribution: Distribution | None = None
    transfer: Transfer | None = None
    say: str = ""
    kept: bool = False
    placed: bool = False

    @property
    def divided(self) -> bool:
        """Whether the layers of the model are to be placed."""
        return not self.request.files and self.request.settings.parallel == "pipeline"

    @property
    def busy(self) -> dict[str, str]:
        """The run that has each node on which this one has to wait for its turn."""
        return {name: node.busy for name, node in self.nodes.items() if node.busy}

    def measures(self, node: str) -> bool:
        """Return whether a node can be measured now: no run has any, and its owner not this one."""
        return not self.busy and not self.nodes[node].away


@dataclass(frozen=True)
class ReadyRun:
    """A run whose nodes are ready: the text of its `run.yml`, the specs by node, and its job."""

    request: LaunchRequest
    text: str
    specs: Mapping[str, dict[str, Any]]
    job: str = ""
    say: str = ""


def launch(request: LaunchRequest, site: Site) -> Stages:
    """Start a run on its nodes.

    Raises `LaunchError` with everything that stands against it.
    """
    _check_launcher(request, site)
    course = Course(request, site)
    yield from mark(course, request)
    nodes = yield from inspect(course, request)
    closed = yield from try_ports(course, request, nodes)
    plan = plan_launch(course, request, nodes, closed)
    course.refuse(request.requested, plan.found)
    yield LaunchStage(
        "plan",
        say=plan.say,
        result={
            "places": plan.divided and not site.check,
            "brings": bool(plan.transfer and plan.transfer.brings) and not plan.kept,
        },
    )
    if request.files:
        ready = yield from bring_script(course, plan)
    elif request.options.preview:
        yield from preview(course, plan)
        return
    else:
        plan = yield from place_layers(course, plan)
        yield from bring_model(course, plan)
        if not plan.placed:  # some models bring their sizes only with all the rest
            plan = yield from place_layers(course, plan)
        ready = yield from prepare(course, plan)
    if not site.check:
        yield from start(course, ready)


def _check_launcher(request: LaunchRequest, site: Site) -> None:
    """Raise `LaunchError` if what was typed for Slurm's jobs, or the queue, is for the other."""
    if request.options.job_options and not site.slurm_nodes:
        raise LaunchError(
            f"{' '.join(request.options.job_options)}: this run is started without Slurm; add "
            f"-e launcher=slurm, or leave it out. {NOTHING}"
        )
    if request.options.queue and site.slurm_nodes:
        raise LaunchError(
            "-e queue and -e at: this run is a job of Slurm, which has a queue of its own; leave "
            "them out, and for a start at a time put --begin=23:00 into hearth_slurm_options "
            f"(docs/scripts.md). {NOTHING}"
        )


# -- inspect ---------------------------------------------------------------------------------------


def inspect(
    course: Course, request: LaunchRequest
) -> Generator[LaunchStage, Answers, dict[str, Inspection]]:
    """Bring the training code, and inspect every node; return those that answered."""
    calls = {}
    for name in request.requested:
        first = name == request.requested[0]
        look = {
            "source": course.site.training,
            "run_file": request.text,
            "spec": _inspection_spec(course, request, name, first),
        }
        calls[name] = [NodeCall("hearth_look", look, {"hub_token": "hub"})]
        if course.site.notifies:
            calls[name].append(program("hearth.notify", "check", spec={}, secret="notify"))
        if first and not request.files and request.settings.goes_on_afterwards:
            text = request.text
            calls[name].append(program("hearth.after", "check", spec={}, run=text, hub_token="hub"))
    answers = yield from course.stage("inspect", calls)
    return {
        name: Inspection.from_facts(facts)
        for name, results in answers.items()
        if (facts := results[0].get("facts"))
    }


def _inspection_spec(
    course: Course, request: LaunchRequest, name: str, first: bool
) -> dict[str, Any]:
    """Return what `hearth.node inspect` is to inspect on a node."""
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
) -> Generator[LaunchStage, Answers, Findings]:
    """Have each node try the ports of the others; return a finding for each closed one."""
    ports = {name: node.port for name, node in nodes.items() if node.port is not None}
    if on_one_computer(nodes) or len(ports) < 2:  # no firewall is in between
        return {}
    peers = _peers(course, ports)
    calls = {
        name: [program("hearth.node", "ports", spec={"own": name, "peers": peers})]
        for name in ports
    }
    answers = yield from course.stage("ports", calls)
    asked = {name: facts_of(results) for name, results in answers.items()}
    return closed_ports(course.addresses, nodes, asked)


def _peers(course: Course, ports: Mapping[str, int | None]) -> list[dict[str, Any]]:
    """Return the nodes at whose ports others can call, if there are two."""
    peers = [
        {"name": name, "address": course.addresses[name], "port": port}
        for name, port in ports.items()
        if port is not None
    ]
    return peers if len(peers) > 1 else []


def _measure_links(
    course: Course, stage: str, ports: Mapping[str, int | None]
) -> Generator[LaunchStage, Answers, dict[str, LinkSpeeds]]:
    """Measure the links between the nodes that answer at a port; return the speeds by node."""
    peers = _peers(course, ports)
    calls = {
        peer["name"]: [
            program(
                "hearth.node",
                "talk",
                spec={"own": peer["name"], "peers": peers, "speed": True},
            )
        ]
        for peer in peers
    }
    answers = yield from course.stage(stage, calls)
    return {name: LinkSpeeds.from_facts(facts_of(results)) for name, results in answers.items()}


# -- plan ------------------------------------------------------------------------------------------


def plan_launch(
    course: Course, request: LaunchRequest, nodes: Mapping[str, Inspection], closed: Findings
) -> LaunchPlan:
    """Decide whether the model fits, whole or by layers, and who sends what to whom."""
    names = list(request.requested)
    count = f"{len(names)} node{'s' * (len(names) > 1)}"
    text = [f"{request.name}: {request.title}, {count} ({', '.join(names)})"]
    found = {name: list(findings) for name, findings in closed.items()}
    distribution = transfer = None
    if not request.files:
        verdict = check_fit(request, {name: _with_room(node) for name, node in nodes.items()})
        if verdict.parallel != request.settings.parallel:
            request = replace(request.with_parallel(verdict.parallel), whole_on=verdict.whole_on)
        text += verdict.lines
        distribution, transfer = planned_transfer(request, course, nodes)
        _add(found, verdict.findings)
        if request.settings.parallel == "pipeline":  # a node needs its layers only, once placed
            request, said = _in_one_precision(request, nodes)
            text += said
        else:
            text += transfer.lines
            _add(found, transfer.found)
    of_nodes: Findings = {}
    _add(of_nodes, idle_gpus(request, nodes))
    _add(of_nodes, unable_to_lend(request, nodes))
    _add(of_nodes, found)
    divided = not request.files and request.settings.parallel == "pipeline"
    # The layers of an earlier run were others.
    kept = (
        not request.files
        and not divided
        and all(name in nodes and nodes[name].prepared for name in names)
    )
    say = "\n".join(f"  {line.strip()}" for line in text)
    return LaunchPlan(request, nodes, of_nodes, distribution, transfer, say, kept, not divided)


def _add(found: Findings, more: Mapping[str, list[str]]) -> None:
    for name, findings in more.items():
        if findings:
            found[name] = [*found.get(name, []), *findings]


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


# -- place -----------------------------------------------------------------------------------------


def place_layers(course: Course, plan: LaunchPlan) -> Generator[LaunchStage, Answers, LaunchPlan]:
    """Place the layers of the model over the nodes, by the speed of each and by their links.

    Where a node is busy or away and was never measured, or the sizes of the model are not known
    before it is there, nothing is placed: then the ranks do it when they begin.

    Raises `LaunchError` if the model fits no placement, a stage no disk, a node has timed its
    layers on other ranks than it was found to have, or a run would go on without the node that
    has its newest checkpoint.
    """
    if not plan.divided or course.site.check:
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
        distribution, transfer = planned_transfer(placed, course, own)
        if lacking := [
            f"{name}: {finding}" for name, said in transfer.found.items() for finding in said
        ]:
            raise LaunchError(*lacking)
    say = "\n".join([placing.say, *(f"  {line}" for line in transfer.lines)])
    yield LaunchStage("placed", say=say, result={"brings": transfer.brings})
    return replace(
        plan,
        request=placed,
        nodes=own,
        distribution=distribution,
        transfer=transfer,
        placed=True,
    )


def _read_sizes(
    course: Course, request: LaunchRequest
) -> Generator[LaunchStage, Answers, Mapping[str, Any]]:
    """Return the config.json of the model, of the first node that knows it."""
    text = request.text
    calls = {
        name: [program("hearth.node", "config", spec={"hub": not rank}, run=text, hub_token="hub")]
        for rank, name in enumerate(request.requested)
    }
    answers = yield from course.stage("sizes", calls)
    configs = (facts_of(results).get("config") for results in answers.values())
    return next(filter(None, configs), {})


def _time_layers(
    course: Course, plan: LaunchPlan, config: Mapping[str, Any]
) -> Generator[LaunchStage, Answers, tuple[dict[str, LayerTimes], dict[str, LinkSpeeds]]]:
    """Measure how fast each node computes a layer, and the links between those that did."""
    request, calls = plan.request, {}
    for name in request.requested:
        spec = {
            "config": config,
            "measure": plan.measures(name),
            "nproc": plan.nodes[name].own["nproc"],
            "address": course.addresses[name],
            "allowed": [course.addresses[each] for each in request.requested],
        }
        calls[name] = [program("hearth.node", "layers", spec=spec, run=request.text)]
    answers = yield from course.stage("layers", calls)
    times = {name: LayerTimes.from_facts(facts_of(results)) for name, results in answers.items()}
    ports = {} if plan.busy else {name: its.port for name, its in times.items()}
    links = yield from _measure_links(course, "layer links", ports)
    return times, links


# -- bring and prepare -----------------------------------------------------------------------------


def bring_model(course: Course, plan: LaunchPlan) -> Generator[LaunchStage, Answers, None]:
    """Bring model and data to every node, unless all were prepared before."""
    if plan.kept or course.site.check or not (plan.distribution and plan.transfer):
        return
    yield from bring(course, plan.request, plan.distribution, plan.transfer)


def bring_script(course: Course, plan: LaunchPlan) -> Generator[LaunchStage, Answers, ReadyRun]:
    """Bring a person's own script and its data to every node, and count the ranks."""
    request, files = plan.request, plan.request.files
    assert files is not None
    # A script puts files beside its data, such as a cache.
    parcels = [
        {**vars(files.code), "keep": files.resumes},
        *([{**vars(files.data), "more": True}] if files.data else []),
    ]
    yield from course.stage(
        "script",
        {
            name: [
                NodeCall("hearth_tree", {"workspace": node.own["workspace"], **parcel})
                for parcel in parcels
            ]
            for name, node in plan.nodes.items()
        },
    )
    course.refuse(request.requested, idle_gpus(request, plan.nodes), _SAME)
    ranks, said = {}, []
    for name, node in plan.nodes.items():
        count = ranks_of(node.memory, node.own["nproc"])
        ranks[name] = NodeRanks(count, gpus_of(node.memory))
        said.append(f"{name} {count} on {device_of(node.memory)}")
    text = [*files.summary, *node_warnings(plan.nodes, course.addresses)]
    text.append(f"ranks: {', '.join(said)}")
    lines = [f"  {line}" for line in text]
    return _ready(course, plan, ranks, _SCRIPT_GRACE, lines)


def preview(course: Course, plan: LaunchPlan) -> Generator[LaunchStage, Answers, None]:
    """Show the first examples of the data as they will be trained, and start nothing."""
    if course.site.check:
        return
    yield from bring_model(course, plan)
    request = plan.request
    spec, (name, *_) = {"examples": request.options.preview}, request.requested
    call = program("hearth.node", "preview", spec=spec, run=request.text, hub_token="hub")
    answers = yield from course.stage("preview", {name: [call]})
    if text := message({name: course.results[name]}, [name], then="Nothing was trained."):
        raise LaunchError(text)
    facts = facts_of(answers[name])
    shown = lines(of_answer(facts), course.site.colours, TABLE_WIDTH)
    say = "\n".join(f"  {line}".rstrip() for line in shown)
    yield LaunchStage("done", say=say, result={"answer": facts})


def prepare(course: Course, plan: LaunchPlan) -> Generator[LaunchStage, Answers, ReadyRun]:
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
    course.refuse(request.requested, idle_gpus(request, nodes, prepared), _SAME)
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
    links = yield from _measure_links(course, "links", ports)
    with nothing_started():
        chosen = _choose(plan, prepared, links, first.steps.get("global_batch"))
        ranks = {
            name: NodeRanks(prepared[name].nproc, gpus_of(nodes[name].memory, prepared[name].gpus))
            for name in chosen.names
        }
        _check_shares(request, sum(its.count for its in ranks.values()))
    away = _describe_away(plan, chosen.names)
    return _ready(
        course,
        replace(plan, request=settled),
        ranks,
        chosen.stop_grace,
        [*text, *filter(None, [chosen.say]), *away],
    )


def _prepare_nodes(
    course: Course, plan: LaunchPlan
) -> Generator[LaunchStage, Answers, dict[str, Preparation]]:
    """Prepare model and data on every node, and measure its speed where that is needed."""
    request, calls = plan.request, {}
    for name in request.requested:
        node = plan.nodes[name]
        spec = {
            "fetch": True,
            "nproc": node.own["nproc"],
            # Where its owner or another run has a node, the speeds of an earlier run have to do.
            "measure": request.measures and plan.measures(name),
            "kept": request.measures,
            "address": course.addresses[name],
            "allowed": [course.addresses[each] for each in request.requested],
            "gpus": node.memory["gpus"],
        }
        calls[name] = [
            program("hearth.node", "prepare", spec=spec, run=request.text, hub_token="hub")
        ]
    answers = yield from course.stage("prepare", calls)
    return {name: Preparation.from_facts(facts_of(results)) for name, results in answers.items()}


def _common(revisions: list[str | None]) -> str | None:
    """Return the revision that all nodes have, or None.

    Two revisions can have the same files, and only the files matter to the ranks.
    """
    return revisions[0] if len(set(revisions)) == 1 else None


# -- choose ----------------------------------------------------------------------------------------


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


def _ready(
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


# -- start -----------------------------------------------------------------------------------------


def start(course: Course, ready: ReadyRun) -> Generator[LaunchStage, Answers, None]:
    """Start the supervisor of the run on every chosen node, or on none.

    Raises `LaunchError` if one did not start.
    """
    request, names = ready.request, list(ready.specs)
    folder = Path(course.site.runs) / request.name
    started = yield from course.stage(
        "start",
        {
            name: [
                NodeCall(
                    "hearth_supervise",
                    {"verb": "start", "spec": spec, "run_file": ready.text},
                    {"token": "key", **_secrets(request)},
                )
            ]
            for name, spec in ready.specs.items()
        },
        say=ready.say,
        local=partial(keep, folder, ready.text, ready.job),
    )
    begun = [name for name, (result,) in started.items() if result.get("findings") == []]
    submitted: Answers = {}
    if ready.job and len(begun) == len(names):
        arguments = {"verb": "submit", "spec": ready.specs[names[0]], "job": ready.job}
        submit = NodeCall("hearth_supervise", arguments, _secrets(request))
        submitted = yield from course.stage("submit", {names[0]: [submit]})
    wrong = [of for (of,) in submitted.values() if of.get("findings") != []]
    if len(begun) < len(names) or wrong:
        yield from _call_back(course, ready, started, begun)
        results = {name: [*started[name], *submitted.get(name, [])] for name in names}
        playing = [name for name in names if not any(of.get("gone") for of in results[name])]
        last = (
            "Supervisors that did start were called back. A node that does not answer ends its own "
            f"after {course.site.timeouts['ready_timeout']:g} s without the others."
        )
        raise LaunchError(message(results, playing, then=last))
    records = submitted or started
    yield LaunchStage("done", say=_way_back(course, ready, records[names[0]][0].get("record", {})))


def _secrets(request: LaunchRequest) -> dict[str, str]:
    """Return the secrets for supervisor and ranks: by variable, the name of the secret."""
    variables = {"WANDB_API_KEY": "wandb", "HEARTH_NOTIFY": "notify"}
    # A script fetches for itself what it wants, and a stream is read by the ranks; others find
    # all in the cache.
    if request.files or request.streams:
        variables["HF_TOKEN"] = "hub"
    # For the supervisor, which pushes when the run has finished; ranks do not get it.
    if not request.files and request.settings.push:
        variables["HEARTH_PUSH_TOKEN"] = "hub"
    return {f"secrets.{name}": secret for name, secret in variables.items()}


def _call_back(
    course: Course, ready: ReadyRun, started: Answers, begun: list[str]
) -> Generator[LaunchStage, Answers, None]:
    """Stop the supervisors that did start, and forget a new run that no node has begun.

    A node that could not be reached may have started nevertheless.
    """
    unreachable = [name for name, (result,) in started.items() if result.get("unreachable")]
    calls = {
        name: [
            NodeCall("hearth_supervise", {"verb": "stop", "now": True, "spec": ready.specs[name]})
        ]
        for name, (result,) in started.items()
        if result.get("changed") or name in unreachable
    }
    folder = Path(course.site.runs) / ready.request.name
    gone = not (ready.request.resumes or begun or unreachable)
    yield from course.stage("call back", calls, local=partial(forget, folder) if gone else None)


def _way_back(course: Course, ready: ReadyRun, record: Mapping[str, Any]) -> str:
    """Return how to look at a run that has started."""
    run, hearth = ready.request.name, course.site.hearth
    state = f"The run {record['why']}" if record.get("why") else "The run is under way"
    if ready.job:
        state = f"The run is job {record['job']} of Slurm"
    return (
        f"  {state} and does not need this terminal.\n"
        f"  look again  {hearth} attach {run}\n"
        f"  its state   {hearth} status\n"
        f"  its logs    {hearth} logs {run} --follow\n"
        f"  stop it     {hearth} stop {run}"
    )
