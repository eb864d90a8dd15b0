"""The run that a person asked for, from the typed variables to the facts that the play needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hearth.base.clock import local_time, time_of
from hearth.base.errors import ConfigError, DataError
from hearth.config import Run, newest_run, resolve_run, run_text
from hearth.config.layout import Layout, staged_name
from hearth.config.presets import known_shape
from hearth.model.code import code_warning
from hearth.node.preview import for_preview
from hearth.record.story import read_story
from hearth_controller.inventory.words import EVERY_NODE, Specs, complete, strangers
from hearth_controller.launch.typed import (
    SLURM_WORDS,
    foreign,
    launch_words,
    sort_out,
    without_all,
)
from hearth_controller.runs.outcome import Outcome
from hearth_controller.script.request import WORDS, ScriptRequest, new_request, resumed_request
from hearth_controller.script.run import script_text
from hearth_controller.script.tree import Tree


def requested(
    typed: Mapping[str, Any],
    runs: Path,
    words: Specs,
    known: list[str],
    names: list[str],
    resume: bool,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Return the facts about the requested run, or `findings` that rule it out.

    `runs` is the folder of runs, `words` are those of the playbook, `known` are names that belong
    to roles or the inventory, `names` those of the nodes. With `resume` an earlier run goes on:
    `run=NAME`, or else the newest.
    """
    given, launch, findings = sort_out(typed, words, known)
    nodes = launch.get("nodes") or ["auto"]
    everywhere = nodes in EVERY_NODE
    findings += [] if everywhere else strangers(nodes, names)
    chosen: dict[str, Any] = {
        "words": complete(launch, words)[0],
        "meeting_port": launch.get("meeting_port", 0),
        "nodes": nodes,
        "requested": [name for name in names if everywhere or name in nodes],
        "elastic": launch.get("elastic"),
        "min_nodes": launch.get("min_nodes", 0),
        "cpu": launch.get("cpu", False),
        "lend": launch.get("lend", True),
        "launcher": launch.get("launcher", ""),
        "queue": {},
        "wait": launch.get("wait", not (launch.get("queue") or "at" in launch)),
        "preview": launch.get("preview", 0),
        "job_options": [
            f"{option}={launch[word]}" for word, option in SLURM_WORDS.items() if word in launch
        ],
    }
    if chosen["preview"] and (resume or "resume" in given):
        findings.append("-e preview: a run that goes on keeps its data; leave it out")
    file = launch.get("config")
    try:
        chosen["queue"] = _queue(launch)
    except ConfigError as error:
        findings += error.findings
    try:
        if resume:
            altered = bool(given or WORDS & launch.keys())
            earlier = given.get("run") or newest_to_go_on(runs, altered)
            given.setdefault("resume", earlier)
        if "script" in launch:
            findings += foreign(given, launch)
        if request := _script(given, launch, runs):
            if request.resumes:
                findings += foreign(given, launch)
            return {"findings": findings} | chosen | _scripted(request)
        findings += [
            f"-e {word}: it counts only together with -e script=FILE"
            for word in sorted(WORDS & launch.keys())
        ]
        run = resolve_run(given, runs, "-e", file and Path(str(file)).expanduser(), say=say)
        if chosen["preview"]:  # any one node can read the data
            run = for_preview(run)
            chosen |= {"requested": chosen["requested"][:1], "queue": {}, "launcher": ""}
        # A resumed run keeps the launch words of its last launch that had any.
        run = replace(run, launch=launch_words(typed, launch) or run.launch)
    except ConfigError as error:
        return {"findings": findings + error.findings}
    findings += _bad_records(run)
    findings += without_all(run.settings, chosen["elastic"], chosen["min_nodes"])
    trusts = run.settings.trust_remote_code
    warnings = {"warnings": [code_warning(run.source.id)]} if trusts else {}
    recorded = read_story(runs / run.name, skim=True).reached
    return {"findings": findings, "recorded": recorded} | chosen | described(run) | warnings


def _bad_records(run: Run) -> list[str]:
    """Return the problems of the data files on this computer, as far as it can read them.

    One that only directs lacks the packages that read them: the nodes find it then.
    """
    try:
        from hearth.node.preview import check_records
    except ModuleNotFoundError:
        return []
    try:
        check_records(run)
    except DataError as error:
        return error.findings
    return []


def _queue(launch: Mapping[str, Any]) -> dict[str, Any]:
    """Return when a run may start and when it was submitted; {} for one that starts at once.

    Raises `ConfigError` if that is no time, or if the run is to meet at a given port.
    """
    if not launch.get("queue") and "at" not in launch:
        return {}
    if launch.get("meeting_port"):
        raise ConfigError(
            "-e meeting_port: a run that waits in the queue meets at a free port of its own; two "
            "runs with the same port would call each other instead of their own nodes, and be "
            "turned away; leave it out"
        )
    submitted = datetime.now(UTC).isoformat(timespec="milliseconds")
    if "at" not in launch:
        return {"at": None, "submitted": submitted}
    try:
        at = time_of(str(launch["at"]), local_time())
    except ValueError as error:
        raise ConfigError(f"-e at: {error}") from error
    return {"at": at.astimezone(UTC).isoformat(), "submitted": submitted}


def newest_to_go_on(runs: Path, altered: bool) -> str:
    """Return the name of the newest run in the folder `runs`.

    Raises `ConfigError` if there is none, or if it is known to have finished and no setting is
    `altered`: a script would start over, and perhaps another run is meant.
    """
    name = newest_run(runs)
    outcome = Outcome.read(runs / name)
    if outcome and outcome.state == "finished" and not altered:
        raise ConfigError(
            f"resume: {name}, the run begun last from here, has finished; say which one is to go "
            "on with -e run=NAME, and to train one longer -e max_steps=NUMBER as well"
        )
    return name


def _script(
    given: Mapping[str, Any], launch: Mapping[str, Any], runs: Path
) -> ScriptRequest | None:
    """Return the new or resumed run of a script; None if none was requested."""
    said = {word: launch[word] for word in WORDS & launch.keys()}
    if "script" in launch:
        return new_request(said | {"run": given["run"]} if "run" in given else said, runs)
    return resumed_request(str(given["resume"]), said, runs) if "resume" in given else None


def _scripted(request: ScriptRequest) -> dict[str, Any]:
    """Return the facts about a script's run for the play."""
    run = request.run
    return {
        "name": run.name,
        "resumes": request.resumes,
        "file": script_text(run),
        "title": run.program,
        "resident": False,
        "summary": request.summary,
        "spec": request.spec,
        "code": _parcel(request.code, request.code_place),
        "data": _parcel(request.data, request.data_place) if request.data else {},
    }


def described(run: Run) -> dict[str, Any]:
    """Return the facts about a run for the play."""
    shape = known_shape(run.settings.model, run.source, Layout.from_environment().models)
    data = " + ".join(Path(name).name for name in run.settings.data_sets)
    several = {shard.dataset for shard in run.shards}
    sources = {shard.path: shard.sha256 for shard in run.shards} | {
        name: sha256 for name, sha256 in run.data_checksums.items() if name not in several
    }
    return {
        "name": run.name,
        "resumes": run.resumes,
        "file": run_text(run),
        "measures": run.settings.wants_speeds or run.settings.parallel == "fsdp",
        "whole_on": [],
        "parallel": run.settings.parallel,
        "resident": run.settings.holds_all,
        "by_speed": run.settings.split == "auto" and run.settings.replay is None,
        "global_batch": run.settings.at_most().global_batch,
        "sync_every": run.settings.sync_every,
        "afterwards": run.settings.goes_on_afterwards,
        "split": [] if isinstance(run.settings.split, str) else list(run.settings.split),
        "files": [
            {"source": source, "staged": staged_name(sha256, source)}
            for source, sha256 in sources.items()
            if sha256
        ],
        "model": run.source.name,
        "settings": run.settings.model_dump(mode="json"),
        "shape": asdict(shape) if shape else {},
        "title": f"{run.source.name} on {data}",
    }


def _parcel(tree: Tree, place: str) -> dict[str, Any]:
    """Return the arguments of `hearth_tree` for files that go to a place in the workspace."""
    return {
        "source": str(tree.source),
        "files": dict(tree.files),
        "size": tree.size,
        "place": place,
    }
