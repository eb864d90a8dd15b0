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
from hearth_controller.launch.request import requested

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
asked:
  description: The nodes among which those that train are chosen, in order of rank.
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
        """Return the run, or its findings."""
        result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        typed = typed_variables(context.CLIARGS.get("extra_vars", ()), self._loader)
        return (
            result
            | {"changed": False}
            | requested(
                typed,
                Path(arguments["runs"]),
                arguments["known"],
                arguments["nodes"],
                arguments["resume"],
            )
        )
