"""Resolve the variables typed after `-e` to the request for a launch, or to findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hearth.base.clock import local_time, time_of
from hearth.base.errors import ConfigError, DataError
from hearth.config import Run, newest_run, resolve_run
from hearth.config.layout import Layout
from hearth.config.presets import known_shape
from hearth.model.code import code_warning
from hearth.node.preview import for_preview
from hearth.record.onto import find_adapter
from hearth.record.story import read_story
from hearth_controller.inventory.words import EVERY_NODE, Specs, complete, strangers
from hearth_controller.launch.request import LaunchOptions, LaunchRequest
from hearth_controller.launch.typed import (
    SLURM_WORDS,
    foreign,
    launch_words,
    sort_out,
    without_all,
)
from hearth_controller.runs.outcome import Outcome
from hearth_controller.script.request import WORDS, ScriptRequest, new_request, resumed_request


@dataclass(frozen=True)
class Resolution:
    """The request that was typed, or the findings that rule it out; the words of the playbook."""

    findings: list[str]
    words: dict[str, Any]
    request: LaunchRequest | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def facts(self) -> dict[str, Any]:
        """The resolution as the result of a task."""
        known = self.request.facts if self.request else {}
        return {"findings": self.findings, "words": self.words, "warnings": self.warnings} | known


def requested(
    typed: Mapping[str, Any],
    runs: Path,
    words: Specs,
    known: list[str],
    names: list[str],
    resume: bool,
    say: Callable[[str], None] = print,
) -> Resolution:
    """Resolve the typed words of a run.

    `runs` is the folder of runs, `words` are those of the playbook, `known` are names that belong
    to roles or the inventory, `names` those of the nodes. With `resume` an earlier run goes on:
    `run=NAME`, or else the newest.
    """
    given, launch, findings = sort_out(typed, words, known)
    nodes = launch.get("nodes") or ["auto"]
    everywhere = nodes in EVERY_NODE
    findings += [] if everywhere else strangers(nodes, names)
    wanted = tuple(name for name in names if everywhere or name in nodes)
    values = complete(launch, words)[0]
    options = _options(launch, nodes)
    if options.preview and (resume or "resume" in given):
        findings.append("-e preview: a run that goes on keeps its data; leave it out")
    file = launch.get("config")
    try:
        options = replace(options, queue=_queue(launch))
    except ConfigError as error:
        findings += error.findings
    try:
        if resume:
            altered = bool(given or WORDS & launch.keys())
            earlier = given.get("run") or newest_to_go_on(runs, altered)
            given.setdefault("resume", earlier)
        if "script" in launch:
            findings += foreign(given, launch)
        if script := _script(given, launch, runs):
            if script.resumes:
                findings += foreign(given, launch)
            return Resolution(findings, values, LaunchRequest.from_script(script, wanted, options))
        findings += [
            f"-e {word}: it counts only together with -e script=FILE"
            for word in sorted(WORDS & launch.keys())
        ]
        file = file and Path(str(file)).expanduser()
        run = resolve_run(given, runs, "-e", file, say=say, find_adapter=find_adapter)
    except ConfigError as error:
        return Resolution(findings + error.findings, values)
    if options.preview:  # any one node can read the data
        run = for_preview(run)
        wanted, options = wanted[:1], replace(options, queue={}, launcher="")
    # A resumed run keeps the launch words of its last launch that had any.
    run = replace(run, launch=launch_words(typed, launch) or run.launch)
    findings += _bad_records(run)
    findings += without_all(run.settings, options.elastic, options.min_nodes)
    request = LaunchRequest(
        run,
        wanted,
        options,
        shape=known_shape(run.settings.model, run.source, Layout.from_environment().models),
        recorded=read_story(runs / run.name, skim=True).reached,
    )
    trusts = run.settings.trust_remote_code
    return Resolution(findings, values, request, [code_warning(run.source.id)] if trusts else [])


def _options(launch: Mapping[str, Any], nodes: list[str]) -> LaunchOptions:
    """Return the options among the launch words, whose defaults are those of `LaunchOptions`."""
    names = ("elastic", "min_nodes", "meeting_port", "cpu", "lend", "launcher", "preview")
    return LaunchOptions(
        nodes=tuple(nodes),
        wait=launch.get("wait", not (launch.get("queue") or "at" in launch)),
        job_options=tuple(
            f"{option}={launch[word]}" for word, option in SLURM_WORDS.items() if word in launch
        ),
        **{name: launch[name] for name in names if name in launch},
    )


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


def _queue(launch: Mapping[str, Any]) -> dict[str, str | None]:
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
