"""Action plugin: turn the `-e` variables into a run, with Hearth's one resolver.

Works on the controller alone. Only real `-e` variables count: an inventory variable that happens to
be called `model` or `seed` does not affect a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ansible import context
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.splitter import parse_kv, unquote
from ansible.plugins.action import ActionBase

from hearth_controller.base.options import argument_spec
from hearth_controller.base.screen import Screen
from hearth_controller.inventory.variables import verb_options
from hearth_controller.launch.resolve import requested

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
    description: Names of the nodes, to compare C(-e nodes) with.
    type: list
    elements: str
    required: true
  verb:
    description:
      - Playbook whose words may stand after C(-e), beside the settings.
      - With V(resume) an earlier run goes on, that of C(-e run=NAME) or else the newest.
    type: str
    required: true
"""

_ARGUMENTS = "script_args="


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


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the request as `requested` resolves it, or its findings."""
        result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        typed = typed_variables(context.CLIARGS.get("extra_vars", ()), self._loader)
        verb = arguments["verb"]
        resolution = requested(
            typed,
            Path(arguments["runs"]),
            verb_options(task_vars["playbook_dir"])[verb],
            arguments["known"],
            arguments["nodes"],
            resume=verb == "resume",
            say=Screen(self._display).line,
        )
        # Its findings are about wrong input.
        return result | {"changed": False, "refused": True} | resolution.facts
