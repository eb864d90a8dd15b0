"""Run one of Hearth's own commands on this node, with a run file and a spec."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ansible.module_utils.hearth_node.base import (
    Report,
    absolute,
    environment,
    hearth,
    write_private,
)

COMMAND_OPTIONS: dict[str, Any] = {
    "workspace": {"type": "str", "required": True},
    "python": {"type": "str", "required": True},
    "node": {"type": "str", "required": True},
    "models": {"type": "str", "default": ""},
    "threads": {"type": "int", "default": 0},
    "variables": {"type": "dict", "default": {}},
    "run_file": {"type": "str", "default": ""},
    "spec": {"type": "dict"},
    "secret": {"type": "str", "no_log": True},
    "hub_token": {"type": "str", "no_log": True},
}
"""Argument spec of a module that runs a command; its documentation is a fragment."""


def places(given: dict[str, Any]) -> dict[str, str]:
    """Return the absolute `workspace`, `python` and, if set, `models` of this node."""
    names = ("workspace", "python", "models")
    return {name: absolute(given[name]) if given[name] else "" for name in names}


def texts(variables: Mapping[str, Any]) -> dict[str, str]:
    """Return environment variables of the inventory, where a value may be a number, as text."""
    return {name: str(value) for name, value in variables.items()}


def lacks_code(workspace: str) -> list[str]:
    """Return a finding if the workspace holds no training code."""
    if os.path.isdir(os.path.join(workspace, "scripts", "hearth")):
        return []
    return [f"{workspace} holds no training code; `hearth provision` brings it"]


def _exit(number: int, _: Any) -> NoReturn:
    """End this module by an exit, which removes its temporary files, as a signal does not."""
    signal.signal(number, signal.SIG_IGN)  # Ansible may send it twice
    sys.exit(128 + number)


def run_command(module: Any, words: Sequence[str]) -> Report:
    """Run `python -m WORDS`, with `--spec FILE` and `--run-file FILE` where they are given."""
    given, here = module.params, places(module.params)
    signal.signal(signal.SIGTERM, _exit)
    if lacks := lacks_code(here["workspace"]):
        return Report(lacks)
    files = {}
    if given["spec"] is not None:
        secret = {"secret": given["secret"]} if given["secret"] else {}
        files["spec"] = json.dumps(given["spec"] | secret)
    if given["run_file"]:
        files["run-file"] = given["run_file"]
    words = list(words)
    for name, text in files.items():
        path = os.path.join(module.tmpdir, name)
        write_private(path, text)
        words += [f"--{name}", path]
    variables = texts(given["variables"]) | environment(
        here["workspace"], given["node"], here["models"], {"HF_TOKEN": given["hub_token"]}
    )
    if given["threads"]:
        variables["OMP_NUM_THREADS"] = str(given["threads"])
    return hearth(module, here["python"], words, variables)
