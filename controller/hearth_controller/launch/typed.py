"""The variables typed after `-e`, sorted into settings of the run and launch words. Pure."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterable, Mapping
from typing import Any

from hearth.base.addresses import hidden
from hearth.config import Settings
from hearth.config.cli import examples_in
from hearth_controller.inventory.words import Specs, hint, is_word, parsed

SLURM_WORDS = {"partition": "--partition", "account": "--account", "time_limit": "--time"}
"""The -e variables of a Slurm job, and the options of sbatch that they become."""

_REPEATED = frozenset(
    {"nodes", "elastic", "min_nodes", "meeting_port", "cpu", "lend", "launcher", *SLURM_WORDS}
)
OF_ROLES = ("launch_", "hearth_")
"""Prefixes of role options that affect the launch of a run."""

_SECRET = frozenset({"hearth_environment", "hearth_notify"})
"""Role options with such a prefix whose values, which may be keys, no file of a run may hold."""


def sort_out(
    typed: Mapping[str, Any], words: Specs, options: Iterable[str]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return the settings of the run, the launch words as values, and findings on both.

    `words` are those of the playbook, which control the launch. `options` are the names that the
    roles or the inventory know; they are ignored.
    """
    settings, findings = {}, []
    options = set(options)
    known = [*Settings.model_fields, *words, *options]
    for name, value in typed.items():
        if name in Settings.model_fields:
            settings[name] = value
        elif name not in known and is_word(name):
            findings.append(f"-e {name}: there is no such setting or option{hint(name, known)}")
    launch, wrong = parsed(typed, words)
    findings += wrong
    for name, value in launch.pop("train", {}).items():
        if name in settings and settings[name] != value:
            findings.append(
                f"-e {name}: given twice, as {hidden(repr(settings[name]))} and in train as "
                f"{hidden(repr(value))}"
            )
        settings.setdefault(name, value)
    findings += _misfits(launch)
    return settings, launch, findings


def launch_words(typed: Mapping[str, Any], launch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `typed` variables that affect the launch, for the record of the run.

    `launch` holds the launch words as values.
    """
    return {
        name: ",".join(value) if isinstance(value, list) else value
        for name, value in {**typed, **launch}.items()
        if name in typed
        and (name in _REPEATED or name.startswith(OF_ROLES))
        and name not in _SECRET
    }


def foreign(settings: Mapping[str, Any], launch: Mapping[str, Any]) -> list[str]:
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
    if launch.get("preview"):
        findings.append("-e preview: only Hearth's own trainer can show its data; leave it out")
    if "min_nodes" in launch and "elastic" not in launch:
        findings.append("-e min_nodes: for a script it counts only together with -e elastic=on")
    return findings


def _misfits(launch: dict[str, Any]) -> list[str]:
    """Return findings on launch words that are of their types; parse the preview in place."""
    findings = [
        f"-e {word}=: it names no file; give one, or leave it out"
        for word in ("config", "script")
        if launch.get(word) == ""
    ]
    if launch.get("min_nodes") == 0:
        findings.append("-e min_nodes: 0 cannot be used; a number of nodes is wanted")
    elif "min_nodes" in launch and launch.get("elastic") is False:
        findings.append("-e min_nodes: -e elastic=off waits for every node; leave it out")
    if "preview" in launch:
        try:
            launch["preview"] = examples_in(str(launch["preview"]))
        except ArgumentTypeError as error:
            findings.append(f"-e preview: {error}")
    port = launch.get("meeting_port", 0)
    if port and not 1024 <= port < 65536:
        findings.append(f"-e meeting_port: {port} cannot be used; 1024 to 65535 is wanted")
    return findings


def without_all(settings: Settings, elastic: bool | None, least: int) -> list[str]:
    """Return findings for settings that rule out a run without some of its nodes.

    `elastic` and `least` (`-e min_nodes`) are as typed: None and 0 if they are not. Only ranks that
    are launched anew are in question; resident ones divide any plan among them.
    """
    if settings.holds_all:
        return []
    if settings.in_stages:
        return [
            f"-e {name}: parallel=pipeline cannot do without a node, whose layers no other has; "
            "leave it out, or take parallel=ddp"
            for name, typed in (("elastic", elastic is True), ("min_nodes", least > 0))
            if typed
        ]
    if elastic is not True:
        return ["-e min_nodes: with parallel=fsdp it counts only together with -e elastic=on"] * (
            elastic is None and least > 0
        )
    alone = [
        "-e min_nodes: parallel: fsdp needs two ranks or more, and one node has one; take "
        "min_nodes=2, or parallel=ddp"
    ]
    return (alone if least == 1 else []) + [
        f"-e elastic: {name} says what each of all ranks does; leave it out, or elastic"
        for name, fixed in (
            ("split", not isinstance(settings.split, str)),
            ("replay", settings.replay is not None),
        )
        if fixed
    ]
