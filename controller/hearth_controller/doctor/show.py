"""The diagnosis of a cluster, from the answers of its nodes to a table and a file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hearth.base.files import write_whole
from hearth.verify.judgement import Observation
from hearth_controller.doctor.examine import examine, mends
from hearth_controller.doctor.node import Cluster, ExaminedNode
from hearth_controller.doctor.table import doctor_lines
from hearth_controller.inventory.unreachable import told_by


def node_of(
    verified: Observation,
    answers: Mapping[str, Mapping[str, Any]],
    one_computer: object = False,
    connection: str | None = None,
    lock: str = "auto",
) -> ExaminedNode:
    """Return all facts about a node.

    `answers` are the results of its modules, some empty: `look`, `claims`, `packages`, the stages
    `plain` and `rooted` (without and with root), and `root`, which tried to become root.
    The others are its variables `hearth_one_computer`, `ansible_connection` and `python_lock`.
    """
    plain, rooted = (answers.get(word, {}).get("stages", {}) for word in ("plain", "rooted"))
    root = answers.get("root", {})
    return ExaminedNode(
        verify=verified,
        alone=str(one_computer).lower() in ("true", "yes", "1"),
        over_ssh=connection not in ("local", "ansible.builtin.local"),
        lock=str(lock),
        rootless=told_by(root) if root.get("failed") else "",
        look=answers.get("look", {}).get("facts", {}),
        packages=_whole(answers.get("packages", {}), "kind"),
        code=_whole(plain.get("workspace", {}), "differing"),
        stages={**plain, **rooted},
        claims=answers.get("claims", {}).get("facts", {}),
    )


def _whole(said: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a module's result, or an empty mapping if it failed or did not run."""
    return said if key in said else {}


def show(
    cluster: Cluster, mending: Mapping[str, Sequence[str]], done: Collection[str], file: str
) -> dict[str, Any]:
    """Return the table as text, and the possible repairs; write the file if requested.

    `mending` are by node the repairs that were due; the nodes in `done` completed theirs.
    """
    mended, unmended = (
        {name: what for name, what in mending.items() if (name in done) is whether}
        for whether in (True, False)
    )
    now = datetime.now(UTC).isoformat(timespec="seconds")
    examined = examine(cluster, now, mended, unmended)
    if file:
        write_whole(Path(file), json.dumps(examined, indent=1) + "\n")
    text = "\n".join(f"  {line}".rstrip() for line in doctor_lines(examined))
    return {"say": text, "verdict": examined["verdict"], "mends": mends(examined)}
