#!/usr/bin/python
"""Ansible module: list Hearth's files of a node's user, and remove them on request."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_leave
short_description: Workspace and environment of a node, kept unless asked
description:
  - Says whether a run is under way on the node, and removes the parts named in O(remove). The
    supervisor of a run holds a lock in the workspace for as long as it lives, however it ends.
  - Run it as the user whose they are.
options:
  workspace:
    description: The node's workspace. May start with C(~).
    type: str
    required: true
  remove:
    description:
      - What to remove.
      - The environment is all of O(environments) but the workspaces in it, such as those of an
        inventory that is one computer alone.
      - Of the workspace, only what Hearth put there goes (see M(hearth_workspace)). Other files,
        such as a person's own model in C(models/), stay and are named.
    type: list
    elements: str
    choices: [environment, workspace]
    default: []
  environments:
    description: >-
      Folder of this node's environments; in a home that nodes share, each has its own. May start
      with C(~).
    type: str
    default: ~/.local/share/hearth
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.locks import queued_runs
from ansible.module_utils.hearth.base.systemd import units_folder
from ansible.module_utils.hearth_node.base import (
    absolute,
    remove_path,
    run_under_way,
)
from ansible.module_utils.hearth_node.workspace.mark import is_workspace, node_mark, removable

_CACHES = ("hearth", "pip", "conda", "huggingface", "torch", "matplotlib", "wandb")


def environment(folder: str) -> list[str]:
    """Return the environments' folder, or its entries other than workspaces if it has any.

    A folder that is a workspace itself holds none.
    """
    if not os.path.isdir(folder) or is_workspace(folder):
        return []
    within = sorted(os.path.join(folder, name) for name in os.listdir(folder))
    others = [path for path in within if not is_workspace(path)]
    return [folder] if others == within else others


def found(workspace: str, environments: str) -> dict[str, list[str]]:
    """Return the existing paths, by kind."""
    return {
        "workspace": [workspace] if is_workspace(workspace) else [],
        "environment": environment(environments),
    }


def traces() -> list[str]:
    """Return the other traces of runs in a home: caches, and a folder that had their units.

    Other programs use the caches, and may have made the empty folder.
    """
    caches = [os.path.join(absolute("~/.cache"), name) for name in _CACHES]
    units = str(units_folder())
    emptied = os.path.isdir(units) and not any(files for _, _, files in os.walk(units))
    return [path for path in caches if os.path.isdir(path)] + [units] * emptied


def main() -> None:
    """Run the module.

    It returns the `run` under way or first in the queue ('' for none), the paths that were (in
    check mode would be) `removed`, and those of Hearth's that are `kept`.
    """
    module = AnsibleModule(
        argument_spec={
            "workspace": {"type": "str", "required": True},
            "remove": {
                "type": "list",
                "elements": "str",
                "choices": ["environment", "workspace"],
                "default": [],
            },
            "environments": {"type": "str", "default": "~/.local/share/hearth"},
        },
        supports_check_mode=True,
    )
    workspace, wanted = absolute(module.params["workspace"]), module.params["remove"]
    present = found(workspace, absolute(module.params["environments"]))
    mark = node_mark(*os.path.split(workspace))  # in the folder of all, where nodes share a home
    try:
        gone = present.pop("environment") if "environment" in wanted else []
        if "workspace" in wanted and present["workspace"]:
            hearths, present["workspace"] = removable(workspace)
            gone = [*hearths, *([mark] if os.path.exists(mark) else []), *gone]
        for path in [] if module.check_mode else gone:
            remove_path(path)
    except OSError as error:
        module.fail_json(msg=f"{error.filename} cannot be removed: {error.strerror}")
    kept = [path for paths in present.values() for path in paths] + traces()
    run = run_under_way(workspace) or "".join(queued_runs(workspace)[:1])
    module.exit_json(changed=bool(gone), run=run, removed=gone, kept=kept)


if __name__ == "__main__":
    main()
