"""Nodes that share a home, as over NFS: who they are, and the settings that keep them apart. Pure.

Each node has written a mark with a token into its workspace, and read those of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

FILE = Path("group_vars", "cluster", "shared_home.yml")
"""File of an inventory with the settings; of the group's files it is read after machines.yml."""

_HEAD = (
    "# Written by Hearth: these machines share a home. Delete this once they no longer do.\n---\n"
)


def sharing(marks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the nodes that use the workspace of another one, too, in the order of `marks`.

    `marks` has the `token` of each node and those that it has `seen` of others.
    """
    owners = {mark["token"]: node for node, mark in marks.items() if mark.get("token")}
    found = {
        each
        for node, mark in marks.items()
        for other in owners.keys() & set(mark.get("seen", ()))
        for each in (node, owners[other])
    }
    return [node for node in marks if node in found]


def settings(workspace: str, shared: bool) -> str:
    """Return the text of `FILE`; with `shared`, models and data stay in the one `workspace`."""
    values = {"hearth_workspace": f"{workspace}/{{{{ inventory_hostname }}}}"}
    return _HEAD + yaml.safe_dump(values | ({"hearth_shared": workspace} if shared else {}))


def file_of(sources: Sequence[str]) -> Path | None:
    """Return the path of `FILE` beside the first inventory of `sources` that is a file or folder.

    None if there is none, or its group has one file of settings, which would then not be read.
    """
    for source in map(Path, sources):
        if source.exists():
            path = (source if source.is_dir() else source.parent) / FILE
            group = path.parent
            files = [group.with_suffix(ending) for ending in (".yml", ".yaml", ".json")]
            return path if group.is_dir() or not any(map(Path.exists, [group, *files])) else None
    return None


def note(nodes: Collection[str], workspace: str, shared: str, file: str) -> str:
    """Return the line about the recognised home."""
    once = f", and models and data are in {shared}, once for all" if shared else ""
    return (
        f"{', '.join(nodes)} share a home: each node now has a workspace of its own, "
        f"{workspace}/NAME{once} (written to {file})"
    )


def refusal(nodes: Collection[str], workspace: str, why: str) -> str:
    """Return the finding that nodes share a workspace which Hearth cannot set apart."""
    return (
        f"{workspace} is the workspace of {', '.join(nodes)}, which share a home or this folder, "
        f"and {why}. Give each node its own: "
        f'hearth_workspace: "{workspace}/{{{{ inventory_hostname }}}}" '
        "(docs/machines.md#one-home-for-all-machines)"
    )
