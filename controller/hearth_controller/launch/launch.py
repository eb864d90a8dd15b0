"""The launch of a run: inspect, plan, place, bring, prepare, choose, start.

Each part plays some stages on the nodes, and decides from their answers. Everything that stands
against the run is found before it starts.
"""

from __future__ import annotations

from hearth.base.errors import LaunchError
from hearth.base.nvidia import ranks_of
from hearth.node.preview import lines, of_answer
from hearth_controller.base.screen import TABLE_WIDTH
from hearth_controller.doctor.message import message
from hearth_controller.launch.bring import bring, mark
from hearth_controller.launch.checks import (
    device_of,
    gpus_of,
    idle_gpus,
    node_warnings,
)
from hearth_controller.launch.course import NOTHING, Course, Site
from hearth_controller.launch.inspecting import inspect, try_ports
from hearth_controller.launch.planning import LaunchPlan, place_layers, plan_launch
from hearth_controller.launch.ready import SAME, SCRIPT_GRACE, ReadyRun, make_ready, prepare
from hearth_controller.launch.request import LaunchRequest
from hearth_controller.launch.spec import NodeRanks
from hearth_controller.launch.stages import LaunchStage, NodeCall, Played, Stages
from hearth_controller.launch.start import start


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
            "places": plan.request.divided and not site.check,
            "brings": bool(plan.transfer and plan.transfer.brings) and not plan.kept,
            "prepares": not plan.kept,
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
    """Raise `LaunchError` if options of Slurm's jobs were typed for the queue, or the reverse."""
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


def bring_model(course: Course, plan: LaunchPlan) -> Played[None]:
    """Bring model and data to every node, unless all were prepared before."""
    if plan.transfer and not plan.kept and not course.site.check:
        yield from bring(course, plan.request, plan.transfer)


def bring_script(course: Course, plan: LaunchPlan) -> Played[ReadyRun]:
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
    course.refuse(request.requested, idle_gpus(request, plan.nodes), SAME)
    ranks, said = {}, []
    for name, node in plan.nodes.items():
        count = ranks_of(node.memory, node.own["nproc"])
        ranks[name] = NodeRanks(count, gpus_of(node.memory))
        said.append(f"{name} {count} on {device_of(node.memory)}")
    text = [*files.summary, *node_warnings(plan.nodes, course.addresses)]
    text.append(f"ranks: {', '.join(said)}")
    lines = [f"  {line}" for line in text]
    return make_ready(course, plan, ranks, SCRIPT_GRACE, lines)


def preview(course: Course, plan: LaunchPlan) -> Played[None]:
    """Show the first examples of the data as they will be trained, and start nothing."""
    if course.site.check:
        return
    yield from bring_model(course, plan)
    request = plan.request
    (name, *_), command = request.requested, "hearth.node preview"
    specs = {name: {"examples": request.options.preview}}
    answers = yield from course.program("preview", command, specs, request.text, hub_token="hub")
    if text := message({name: course.results[name]}, [name], then="Nothing was trained."):
        raise LaunchError(text)
    shown = lines(of_answer(answers[name]), course.site.colours, TABLE_WIDTH)
    say = "\n".join(f"  {line}".rstrip() for line in shown)
    yield LaunchStage("done", say=say, result={"answer": answers[name]})
