"""The nodes' answers about their runs, extracted from Ansible's host variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hearth_controller.runs.observed import Digest


def digests_of(
    names: Sequence[str], known: Mapping[str, Mapping[str, Any]]
) -> dict[str, Sequence[Digest] | None]:
    """Return the run digests from `hearth_runs` by node; None for a node without an answer.

    `known` holds Ansible's variables by node, with the answer under `runs_look`.
    """
    return {name: known[name].get("runs_look", {}).get("runs") for name in names}
