"""Launches without nodes: their answers, and the stages of a launch played on them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from hearth_controller.launch.answers import Inspection
from hearth_controller.launch.course import Course, Site
from hearth_controller.launch.planning import LaunchPlan, plan_launch
from hearth_controller.launch.ready import ReadyRun, prepare
from hearth_controller.launch.request import LaunchRequest
from hearth_controller.launch.resolve import requested
from support.words import TRAIN

TIMEOUTS = {"ready_timeout": 60.0, "silence_timeout": 15.0, "return_timeout": 0.0}
GIB = 1 << 10
SPEED = {"sizes": [1, 2], "seconds": [1.0, 1.5]}


def launch_request(runs: Path, names: list[str], typed: Mapping[str, Any]) -> LaunchRequest:
    """Return the request for the typed words, which have no findings."""
    resolution = requested(typed, runs, TRAIN, [], names, False)
    assert resolution.request, resolution.findings
    assert not resolution.findings
    return resolution.request


def inspected_node(**facts: Any) -> dict[str, Any]:
    """Return the answer of an inspected node with plenty of memory, with further facts."""
    own = {"python": "/p", "workspace": "/w", "models": "/m", "one_computer": False}
    own |= {"variables": {}, "nproc": 0, "threads": 0, "lend": {}}
    memory = {"gpus": [], "free_mib": 64 * GIB, "cards": [], "prime_off": False}
    memory |= {"trouble": "no nvidia-smi"} | facts.pop("memory", {})
    memory = {"cuda": bool(memory["gpus"])} | memory
    places = {
        name: dict.fromkeys(("model", "data"), name) for name in ("folders", "places", "disks")
    }
    copies = {
        **places,
        "holds": {"model": "abc", "data": ""},
        "free": {"model": 1 << 40},
        "arrived": {"model": 0},
        "downloaded": {"model": 0},
        "pieces": {},
        "mbit": 1000,
        "wireless": False,
        "port": 7,
    }
    home = {"on_battery": False, "gpus": [], "gpu_trouble": "no nvidia-smi"}
    known = {"own": own | facts.pop("own", {}), "memory": memory, "home": home}
    known |= {"copies": copies | facts.pop("copies", {}), "port": 2000, "generation": 0}
    return {"findings": [], "facts": known | facts}


def prepared(nproc: int = 1, **facts: Any) -> dict[str, Any]:
    """Return the answer of a prepared node."""
    rank = {"speed": SPEED, "row_tokens": 100, "exchange_bytes": 1000, "saturated": True}
    known = {"nproc": nproc, "ranks": [rank] * nproc, "summary": ["model: here"], "port": 9}
    return {"findings": [], "facts": known | facts}


def inspections(looks: Mapping[str, Any]) -> dict[str, Inspection]:
    """Return the typed facts of the nodes that answered."""
    return {
        name: Inspection.from_facts(each["facts"])
        for name, each in looks.items()
        if each.get("facts")
    }


def course_of(
    request: LaunchRequest, addresses: Mapping[str, str], looks: Mapping[str, Any], **site: Any
) -> Course:
    """Return a launch whose nodes have been inspected."""
    course = Course(request, Site(addresses, **{"timeouts": TIMEOUTS, **site}))
    for name, result in looks.items():
        course.results.setdefault(name, []).append(result)
    return course


def finish(stages: Generator, answers: Mapping[str, Mapping[str, Any]]) -> tuple[Any, list]:
    """Play stages with these answers by stage and node; return their value and the stages."""
    played = []
    try:
        stage = next(stages)
        while True:
            played.append(stage)
            known = answers.get(stage.name, {})
            good = {"findings": [], "facts": {}}
            stage = stages.send({name: [known.get(name, good)] for name in stage.calls})
    except StopIteration as end:
        return end.value, played


def planned(
    request: LaunchRequest,
    addresses: Mapping[str, str],
    looks: Mapping[str, Any],
    closed: Mapping[str, list[str]] | None = None,
) -> LaunchPlan:
    """Return the plan for nodes with these answers."""
    course = course_of(request, addresses, looks)
    return plan_launch(course, request, inspections(looks), dict(closed or {}))


def readied(
    request: LaunchRequest,
    addresses: Mapping[str, str],
    looks: Mapping[str, Any],
    nodes: Mapping[str, Any],
    links: Mapping[str, Any] | None = None,
    **site: Any,
) -> ReadyRun:
    """Return the run that is ready to start once its nodes were prepared with these answers."""
    plan = planned(request, addresses, looks)
    course = course_of(plan.request, addresses, looks, **site)
    return finish(prepare(course, plan), {"prepare": nodes, "links": links or {}})[0]
