#!/usr/bin/python
"""Ansible module: keep a folder of this node's workspace equal to the controller's files."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_tree
short_description: Have the same files here as on the controller
description:
  - Compares checksums. The action plugin of the same name sends an archive of all files where one
    is missing or another; a node that has them costs one small call.
  - What is wrong comes back as RV(findings) and does not fail the task (see M(hearth_verdict)).
  - A folder that Hearth did not make is a finding and is not replaced (see M(hearth_workspace)).
options:
  workspace:
    description: The node's workspace. May start with C(~).
    type: str
    required: true
  place:
    description: Folder for the files, in the workspace.
    type: str
    required: true
  files:
    description: Checksum (SHA-256) by relative path.
    type: dict
    required: true
  size:
    description: Bytes of all files; there must be room for them.
    type: int
    required: true
  source:
    description: Folder of the controller that holds them. For the action plugin only.
    type: path
  keep:
    description: >-
      Whether a run has worked in the folder since it arrived. Then files beside those of O(files)
      stay, and a changed one is a finding, since it may not be replaced.
    type: bool
    default: false
  more:
    description: >-
      Whether files beside those of O(files) stay. They go if one of those has to be sent again.
    type: bool
    default: false
  archive:
    description: Archive on the node with all files. From the action plugin.
    type: path
"""

import errno
import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import absolute
from ansible.module_utils.hearth_node.workspace.folder import (
    differing,
    named,
    take_place,
    unpack,
)
from ansible.module_utils.hearth_node.workspace.mark import claim, is_claimed, write_mark


def no_room(workspace: str, temporary: str, size: int) -> list[str]:
    """Return findings if the files, or their archive in the folder `temporary`, do not fit."""
    wanted: dict[int, tuple[str, int]] = {}
    both = " (as they travel and as they lie)"
    for place in (workspace, temporary):
        disk = os.stat(place).st_dev
        first, already = wanted.get(disk, (place, 0))
        wanted[disk] = (first, already + size)
    return [
        f"the disk of {place} has {free / 1e9:.1f} GB free, and {needed / 1e9:.1f} GB are needed "
        f"to bring {size / 1e9:.1f} GB{both if needed > size else ''}; make room there"
        for place, needed in wanted.values()
        if needed >= (free := shutil.disk_usage(place).free)
    ]


def replace(archive: str, folder: str, files: dict[str, str], temporary: str) -> list[str]:
    """Move the files into place if their checksums match; return findings."""
    parent, name = os.path.split(folder)
    fresh = os.path.join(parent, f".{name}.arriving")  # no run can have this name
    os.makedirs(parent, exist_ok=True)
    try:
        unpack(archive, fresh)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    if wrong := differing(fresh, files):
        shutil.rmtree(fresh)
        return [f"{named(wrong)} changed on the controller while it was sent; start the run again"]
    take_place(fresh, folder, temporary)
    return []


def main() -> None:
    """Run the module; return whether the files are `wanted`, and `findings`."""
    module = AnsibleModule(
        argument_spec={
            "workspace": {"type": "str", "required": True},
            "place": {"type": "str", "required": True},
            "files": {"type": "dict", "required": True},
            "size": {"type": "int", "required": True},
            "keep": {"type": "bool", "default": False},
            "more": {"type": "bool", "default": False},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    given = module.params
    workspace = absolute(given["workspace"])
    folder = os.path.join(workspace, given["place"])
    answer = {"changed": False, "wanted": False, "findings": []}
    try:
        made = claim(workspace, [given["place"]])
        if not is_claimed(given["place"], made):
            answer["findings"] = [
                f"{folder} is there already and is not Hearth's; move it away, or set "
                "hearth_workspace to another folder"
            ]
            module.exit_json(**answer)
        if given["archive"]:
            write_mark(workspace, made, check=False)
            answer["findings"] = replace(given["archive"], folder, given["files"], module.tmpdir)
            module.exit_json(**answer | {"changed": not answer["findings"]})
        keep = given["keep"] and os.path.isdir(folder)
        wrong = differing(folder, given["files"], keep or given["more"])
        if wrong and keep:
            answer["findings"] = [
                f"{folder}: {named(wrong)} changed since the run began, which keeps a copy of its "
                "own; put it back as it was, or start a new run"
            ]
        elif wrong and os.path.isdir(workspace):
            answer["findings"] = no_room(workspace, module.tmpdir, given["size"])
        wanted = bool(wrong) and not answer["findings"]
        module.exit_json(**answer | {"changed": wanted, "wanted": wanted})
    except OSError as error:
        full = error.errno == errno.ENOSPC
        cure = "make room there" if full else "give this user the right to"
        answer["findings"] = [
            f"{error.filename or folder} cannot be written ({error.strerror}); {cure}, or set "
            "hearth_workspace to another folder"
        ]
        module.exit_json(**answer)


if __name__ == "__main__":
    main()
