#!/usr/bin/python
"""Ansible module: list the runs recorded on a node, move one in its queue, or remove one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_runs
short_description: Say what a node knows of its runs, and move or remove one
description:
  - Needs neither the environment nor the training code of the node.
options:
  workspace:
    description: The node's workspace. May start with C(~).
    type: str
    required: true
  models:
    description: The node's cache of models; that in the workspace without it.
    type: str
    default: ""
  remove:
    description:
      - Name of the run to remove; never one that trains. One that waits for its turn is stopped
        first.
    type: str
    default: ""
  move:
    description: Name of a run in the queue of this node, which gets another O(position).
    type: str
    default: ""
  position:
    description: The new position, the same on all nodes of the run; lower ones come first.
    type: float
    default: 0
"""

import json
import os
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.files import alone
from ansible.module_utils.hearth.base.locks import is_in_queue
from ansible.module_utils.hearth.base.places import QUEUE, RUN_NAME
from ansible.module_utils.hearth.base.systemd import units_of
from ansible.module_utils.hearth_node.base import (
    absolute,
    run_under_way,
    sendable,
    text_of,
    write_private,
)
from ansible.module_utils.hearth_node.runs.digest import (
    paths,
    remove,
    size,
    summaries,
    whole_models,
)

_STOP_TIMEOUT = 120.0


def move(module: AnsibleModule, workspace: str, run: str, position: float) -> bool:
    """Give a run another position in the queue; return whether that changed anything."""
    if not is_in_queue(workspace, run):
        module.fail_json(msg=f"run '{run}' does not wait in the queue here: has it begun?")
    path = os.path.join(workspace, QUEUE, f"{run}.json")
    try:
        with alone(Path(workspace, QUEUE)):
            entry = json.loads(text_of(path) or "{}")
            if not entry:
                module.fail_json(msg=f"run '{run}' has just begun here")
            if entry["position"] == position or module.check_mode:
                return bool(entry["position"] != position)
            write_private(path, json.dumps(entry | {"position": position}, indent=1) + "\n")
    except (OSError, ValueError, KeyError) as error:
        module.fail_json(msg=f"{path} cannot be changed: {error}")
    return True


def stop_waiting(module: AnsibleModule, workspace: str, run: str) -> None:
    """End the supervisor of a run that waits for its turn, and wait until it is gone."""
    try:
        write_private(os.path.join(workspace, "results", run, "stop"), "now\n")
    except OSError as error:
        module.fail_json(msg=f"run '{run}' cannot be stopped: {error.strerror}")
    until = time.monotonic() + _STOP_TIMEOUT
    while is_in_queue(workspace, run) or run in units_of(workspace):
        if time.monotonic() > until:
            module.fail_json(
                msg=f"run '{run}' did not leave the queue within {_STOP_TIMEOUT:.0f} s; nothing "
                "was removed"
            )
        time.sleep(0.2)


def main() -> None:
    """Run the module; return the `runs` as `summaries` finds them, or the `removed` paths.

    With the `runs` come the model folders that lack no weights (`whole`). `removed` is bytes
    by path in the workspace; in check mode, of the paths that would go. A move returns neither.
    """
    module = AnsibleModule(
        argument_spec={
            "workspace": {"type": "str", "required": True},
            "models": {"type": "str", "default": ""},
            "remove": {"type": "str", "default": ""},
            "move": {"type": "str", "default": ""},
            "position": {"type": "float", "default": 0.0},
        },
        supports_check_mode=True,
    )
    workspace, run = absolute(module.params["workspace"]), module.params["remove"]
    if moved := module.params["move"]:
        changed = move(module, workspace, moved, module.params["position"])
        module.exit_json(changed=changed)
    if not run:
        models = module.params["models"] or os.path.join(workspace, "models")
        whole = whole_models(absolute(models))
        module.exit_json(changed=False, runs=sendable(summaries(workspace)), whole=sendable(whole))
    if not RUN_NAME.fullmatch(run):
        module.fail_json(msg=f"{run!r} cannot be the name of a run; nothing was removed")
    if is_in_queue(workspace, run) and run_under_way(workspace) != run and not module.check_mode:
        stop_waiting(module, workspace, run)
    if run_under_way(workspace) == run:
        module.fail_json(msg=f"run '{run}' is under way here: stop it first; nothing was removed")
    there = {path: size(os.path.join(workspace, path)) for path in paths(workspace, run)}
    if there and not module.check_mode:
        try:
            remove(workspace, run)
        except OSError as error:
            module.fail_json(msg=f"{error.filename} cannot be removed: {error.strerror}")
    module.exit_json(changed=bool(there), removed=there)


if __name__ == "__main__":
    main()
