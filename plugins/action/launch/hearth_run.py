"""Action plugin: turn the `-e` variables into a run, with Hearth's one resolver.

Works on the controller alone. Only real `-e` variables count: an inventory variable that happens to
be called `model` or `seed` does not affect a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ansible import context
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.splitter import parse_kv, unquote
from ansible.plugins.action import ActionBase

from hearth.base.errors import ConfigError, did_you_mean
from hearth.config import Run, Settings, newest_run, resolve_run, run_text
from hearth.config.layout import Layout, staged_name
from hearth.fit.known import known_shape
from hearth.model.code import code_warning
from hearth_controller.runs.outcome import Ends, state_of
from hearth_controller.runs.story import Story, read_lines
from hearth_controller.script.request import WORDS, Asked, ask, go_on
from hearth_controller.script.run import script_text
from hearth_controller.script.tree import Tree

DOCUMENTATION = r"""
module: hearth_run
short_description: Resolve the run that was asked for
description:
  - Every setting can be given as C(-e SETTING=VALUE), in a file by C(-e config=FILE), or inside the
    mapping C(train).
  - With C(-e script=FILE) it is the run of a person's own script, which has none of them.
  - What is wrong comes back as RV(findings) and does not fail the task (see M(hearth_verdict)).
options:
  runs:
    description: Folder of the controller that holds a folder a run.
    type: path
    required: true
  known:
    description: Names that mean something to a role or in the inventory, and so are no settings.
    type: list
    elements: str
    required: true
  nodes:
    description: Names of the nodes, with which C(-e nodes) is compared.
    type: list
    elements: str
    required: true
  resume:
    description: Whether an earlier run goes on, that of C(-e run=NAME) or else the newest.
    type: bool
    default: false
"""

RETURN = r"""
name:
  description: Name of the run.
  type: str
  returned: without findings
file:
  description: Text of its C(run.yml).
  type: str
  returned: without findings
dataset:
  description: C(source) and C(staged) name of a local data file; empty if there is none.
  type: dict
  returned: without findings
split:
  description: The relative share of each rank; empty where it was not set by hand.
  type: list
  returned: without findings
model:
  description: Name of the model.
  type: str
  returned: without findings
settings:
  description: All settings of the run.
  type: dict
  returned: without findings
shape:
  description: The sizes of the model as far as the controller knows them; else empty.
  type: dict
  returned: without findings
title:
  description: One line that says what is trained on what.
  type: str
  returned: without findings
meeting_port:
  description: Port at which the supervisors meet; 0 lets rank 0 choose a free one.
  type: int
  returned: without findings
measures:
  description: Whether nodes or links are to be measured before the run.
  type: bool
  returned: without findings
nodes:
  description: The nodes that were asked for by name, or C(all) or C(auto) alone.
  type: list
  returned: without findings
elastic:
  description: Whether the others go on when a node is lost.
  type: bool
  returned: without findings
min_nodes:
  description: With how many nodes at least; 0 for more than half of them.
  type: int
  returned: without findings
by_speed:
  description: Whether the split of a step follows the speeds.
  type: bool
  returned: without findings
parallel:
  description: V(ddp), or V(fsdp) where every rank has a part of the model.
  type: str
  returned: without findings
global_batch:
  description: Rows of a step.
  type: int
  returned: without findings
resumes:
  description: Whether it is an earlier run that goes on.
  type: bool
  returned: without findings
recorded:
  description: Step of the newest checkpoint that the record here tells of; null without one.
  type: int
  returned: without findings, but for a script
sync_every:
  description: How many steps lie between two exchanges of the nodes.
  type: int
  returned: without findings
told:
  description: What of a person's script and its data goes to the nodes, a line each.
  type: list
  returned: for a script
code:
  description: >-
    What the nodes get of the folder of a person's script - C(source), C(files) (checksum by path),
    C(size) in bytes and C(place) in the workspace.
  type: dict
  returned: for a script
data:
  description: Likewise the data that comes along; empty if none does.
  type: dict
  returned: for a script
spec:
  description: What the supervisors have to know of the script.
  type: dict
  returned: for a script
findings:
  description: What is wrong, one sentence each.
  type: list
  returned: always
"""

# The -e variables that control the launch; others are settings of the run or options of a role.
LAUNCH_WORDS = frozenset(
    {"train", "config", "wait", "meeting_port", "nodes", "elastic", "min_nodes", *WORDS}
)
_ARGUMENTS = "script_args="

_REPEATED = frozenset({"nodes", "elastic", "min_nodes", "meeting_port"})
_OF_ROLES = ("launch_", "hearth_")
"""Prefixes of role options that affect the launch of a run."""


def typed_variables(options: Iterable[str], loader: DataLoader) -> dict[str, Any]:
    """Return the `-e` variables as plain Python.

    As Ansible does, but several `train` mappings are merged instead of replacing each other.
    """
    typed: dict[str, Any] = {}
    for option in map(str, options):
        if option.startswith("@"):
            one = loader.load_from_file(option[1:])
        elif option.startswith(_ARGUMENTS):
            # The whole rest: a script's options contain blanks and `=`.
            one = {"script_args": unquote(option.removeprefix(_ARGUMENTS).strip())}
        elif option.startswith(("{", "[")):
            one = loader.load(option)
        else:
            one = parse_kv(option)
        # Through JSON, which drops Ansible's tags: the resolver does not know them.
        one = json.loads(json.dumps(one or {}, default=str))
        if isinstance(one.get("train"), dict) and isinstance(typed.get("train"), dict):
            one["train"] = {**typed["train"], **one["train"]}
        typed |= one
    return typed


def sort_out(
    typed: Mapping[str, Any], options: Iterable[str]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return the settings of the run, the launch words, and findings on both.

    `options` are the names that the roles or the inventory know; they are ignored.
    """
    settings, launch, findings = {}, {}, []
    options = set(options)
    known = [*Settings.model_fields, *LAUNCH_WORDS, *options]
    for name, value in typed.items():
        if name in Settings.model_fields:
            settings[name] = value
        elif name in LAUNCH_WORDS:
            launch[name] = value
        elif name not in options and not name.startswith("ansible_"):
            findings.append(
                f"-e {name}: there is no such setting or option{did_you_mean(name, known)}"
            )
    nested = launch.pop("train", {})
    if not isinstance(nested, dict):
        findings.append("""-e train: a mapping is wanted, such as '{"train": {"max_steps": 50}}'""")
        nested = {}
    for name, value in nested.items():
        if name in settings and settings[name] != value:
            findings.append(
                f"-e {name}: given twice, as {settings[name]!r} and in train as {value!r}"
            )
        settings.setdefault(name, value)
    findings += _misfits(launch)
    return settings, launch, findings


def launch_words(typed: Mapping[str, Any], launch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `typed` variables that affect the launch, for the record of the run.

    `launch` holds the launch words, with numbers and booleans parsed.
    """
    return {
        name: launch.get(name, value)
        for name, value in typed.items()
        if name in _REPEATED or name.startswith(_OF_ROLES)
    }


def _foreign(settings: Mapping[str, Any], launch: Mapping[str, Any]) -> list[str]:
    """Return findings for variables that cannot be combined with a script."""
    instead = [word for word in ("model", "resume") if word in settings and "script" in launch]
    findings = [
        f"-e {word} and -e script: only one of them can be meant; leave one out" for word in instead
    ]
    findings += [
        f"-e {word}: that is for Hearth's own trainer; a script gets its options by -e script_args="
        for word in (*settings, *(["config"] if "config" in launch else []))
        if word not in ("resume", "run", *instead)
    ]
    if launch.get("elastic") is True:
        findings.append("-e elastic: a script is launched on all its nodes or none; leave it out")
    return findings


def _misfits(launch: dict[str, Any]) -> list[str]:
    """Parse numbers and booleans in the launch words in place; return findings."""
    findings = []
    for name in {"wait", "elastic"} & launch.keys():
        try:
            launch[name] = boolean(launch[name])
        except TypeError:
            findings.append(f"-e {name}: {launch[name]!r} cannot be used; true or false is wanted")
    least = str(launch.get("min_nodes", 1))
    if not (least.isdecimal() and int(least)):
        findings.append(f"-e min_nodes: {least!r} cannot be used; a number of nodes is wanted")
    elif "min_nodes" in launch:
        launch["min_nodes"] = int(least)
        if launch.get("elastic") is not True:
            findings.append("-e min_nodes: it counts only together with -e elastic=true")
    port = str(launch.get("meeting_port", 0))
    if port.isdecimal() and (int(port) == 0 or 1024 <= int(port) < 65536):
        launch["meeting_port"] = int(port)
    else:
        findings.append(f"-e meeting_port: {port!r} cannot be used; 1024 to 65535 is wanted")
    return findings


def not_elastic(settings: Settings, least: int) -> list[str]:
    """Return findings for settings that rule out an elastic run with `least` nodes or more."""
    alone = [
        "-e min_nodes: parallel: fsdp needs two ranks or more, and one node has one; take "
        "min_nodes=2, or parallel=ddp"
    ]
    return (alone if settings.parallel == "fsdp" and least == 1 else []) + [
        f"-e elastic: {name} says what each of all ranks does; leave it out, or elastic"
        for name, fixed in (
            ("split", not isinstance(settings.split, str)),
            ("replay", settings.replay is not None),
        )
        if fixed
    ]


def newest_to_go_on(runs: Path, altered: bool) -> str:
    """Return the name of the newest run in the folder `runs`.

    Raises `ConfigError` if there is none, or if it is known to have finished and no setting is
    `altered`: a script would start over, and perhaps another run is meant.
    """
    name = newest_run(runs)
    ends = Ends.read(runs / name)
    if ends and state_of(ends.by_node) == "finished" and not altered:
        raise ConfigError(
            f"resume: {name}, the run begun last from here, has finished; say which one is to go "
            "on with -e run=NAME, and to train one longer -e max_steps=NUMBER as well"
        )
    return name


def _parcel(tree: Tree, place: str) -> dict[str, Any]:
    """Return the arguments of `hearth_tree` for files that go to a place in the workspace."""
    return {
        "source": str(tree.source),
        "files": dict(tree.files),
        "size": tree.size,
        "place": place,
    }


def strangers(wanted: list[str], names: list[str]) -> list[str]:
    """Return a finding if a `wanted` node is not one of `names`."""
    unknown = [name for name in wanted if name not in names]
    if wanted in (["all"], ["auto"]) or not names or not unknown:
        return []
    hint = did_you_mean(unknown[0], names)
    return [f"-e nodes: there is no node {unknown[0]}{hint}; there are {', '.join(names)}"]


class ActionModule(ActionBase):
    """Runs on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the run, or its findings."""
        result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            {
                "runs": {"type": "path", "required": True},
                "known": {"type": "list", "elements": "str", "required": True},
                "nodes": {"type": "list", "elements": "str", "required": True},
                "resume": {"type": "bool", "default": False},
            }
        )
        typed = typed_variables(context.CLIARGS.get("extra_vars", ()), self._loader)
        given, launch, findings = sort_out(typed, arguments["known"])
        nodes = [name.strip() for name in str(launch.get("nodes", "auto")).split(",")]
        findings += strangers(nodes, arguments["nodes"])
        chosen = {
            "meeting_port": launch.get("meeting_port", 0),
            "nodes": nodes,
            "elastic": launch.get("elastic", False),
            "min_nodes": launch.get("min_nodes", 0),
        }
        file, runs = launch.get("config"), Path(arguments["runs"])
        result |= {"changed": False, "findings": findings}
        try:
            if arguments["resume"]:
                altered = bool(given or WORDS & launch.keys())
                earlier = given.get("run") or newest_to_go_on(runs, altered)
                given.setdefault("resume", earlier)
            if "script" in launch:
                findings += _foreign(given, launch)
            if asked := self._script(given, launch, runs):
                if asked.resumes:
                    findings += _foreign(given, launch)
                return result | chosen | self._scripted(asked)
            findings += [
                f"-e {word}: it counts only together with -e script=FILE"
                for word in sorted(WORDS & launch.keys())
            ]
            run = resolve_run(given, runs, "-e", file and Path(str(file)).expanduser())
            # A resumed run keeps the launch words of its last launch that had any.
            run = replace(run, launch=launch_words(typed, launch) or run.launch)
        except ConfigError as error:
            return result | {"findings": findings + error.findings}
        if chosen["elastic"] is True:
            result["findings"] = findings + not_elastic(run.settings, chosen["min_nodes"])
        if run.settings.trust_remote_code:
            result["warnings"] = [code_warning(run.source.id)]
        recorded = Story.of(read_lines(runs / run.name / "metrics.jsonl")).reached
        return result | chosen | self._described(run) | {"recorded": recorded}

    @staticmethod
    def _script(given: Mapping[str, Any], launch: Mapping[str, Any], runs: Path) -> Asked | None:
        """Return the new or resumed run of a script; None if none was requested."""
        said = {word: launch[word] for word in WORDS & launch.keys()}
        if "script" in launch:
            return ask(said | {"run": given["run"]} if "run" in given else said, runs)
        return go_on(str(given["resume"]), said, runs) if "resume" in given else None

    @staticmethod
    def _scripted(asked: Asked) -> dict[str, Any]:
        """Return the facts about a script's run for the play."""
        run = asked.run
        return {
            "name": run.name,
            "resumes": asked.resumes,
            "file": script_text(run),
            "title": run.program,
            "told": asked.told,
            "spec": asked.spec,
            "code": _parcel(asked.code, asked.code_place),
            "data": _parcel(asked.data, asked.data_place) if asked.data else {},
        }

    @staticmethod
    def _described(run: Run) -> dict[str, Any]:
        """Return the facts about a run for the play."""
        shape = known_shape(run.settings.model, run.source, Layout.from_environment().models)
        source = run.settings.dataset
        staged = run.dataset_sha256 and staged_name(run.dataset_sha256, source)
        return {
            "name": run.name,
            "resumes": run.resumes,
            "file": run_text(run),
            "measures": run.settings.wants_speeds or run.settings.parallel == "fsdp",
            "parallel": run.settings.parallel,
            "by_speed": run.settings.split == "auto" and run.settings.replay is None,
            "global_batch": run.settings.global_batch,
            "sync_every": run.settings.sync_every,
            "split": [] if isinstance(run.settings.split, str) else list(run.settings.split),
            "dataset": {"source": source, "staged": staged} if staged else {},
            "model": run.source.name,
            "settings": run.settings.model_dump(mode="json"),
            "shape": asdict(shape) if shape else {},
            "title": f"{run.source.name} on {Path(source).name}",
        }
