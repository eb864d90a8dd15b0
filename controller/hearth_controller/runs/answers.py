"""What the nodes have answered, from what Ansible knows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hearth_controller.runs.observed import Digest


def digests_of(
    names: Sequence[str], known: Mapping[str, Mapping[str, Any]]
) -> dict[str, Sequence[Digest] | None]:
    """Return by node what `hearth_runs` has found; None for a node that has not answered.

    `known` are Ansible's variables by node, in which the answer is called `runs_look`.
    """
    return {name: known[name].get("runs_look", {}).get("runs") for name in names}
