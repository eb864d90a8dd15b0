"""Start the supervisors of a run on every chosen node, or on none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hearth.base.errors import LaunchError
from hearth_controller.doctor.message import message
from hearth_controller.launch.course import Course
from hearth_controller.launch.ready import ReadyRun
from hearth_controller.launch.request import LaunchRequest
from hearth_controller.launch.stages import Answers, LaunchStage, NodeCall, Played
from hearth_controller.runs.collect import forget, keep


def start(course: Course, ready: ReadyRun) -> Played[None]:
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


def _call_back(course: Course, ready: ReadyRun, started: Answers, begun: list[str]) -> Played[None]:
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
    """Return the commands that show a run that has started."""
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
