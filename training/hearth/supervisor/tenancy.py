"""The tenant of this node now: a run, or the owner."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hearth.base.errors import LaunchError
from hearth.base.files import read_object
from hearth.supervisor.cause import ENDS
from hearth.supervisor.record import lock_holder, read_record


@dataclass(frozen=True)
class Tenancy:
    """The run under way on this node, "" for none, and whether it has the machine now.

    `away` is the reason why it has not, and `since` when that was so or not, if it is known.
    `lends` is whether the run heeds the person's word: it was launched with this node's terms.
    """

    run: str = ""
    away: str = ""
    since: datetime | None = None
    lends: bool = True

    @property
    def has_machine(self) -> bool:
        """Whether the run has the machine."""
        return bool(self.run) and not self.away


def tenancy(workspace: Path) -> Tenancy:
    """Return the tenancy of the node with this workspace."""
    holder = lock_holder(workspace)
    if holder is None:
        return Tenancy()
    run = str(holder["run"])
    try:
        record = read_record(workspace, run)
    except (LaunchError, ValueError):  # it has just begun, and has no record yet
        return Tenancy(run)
    if record["state"] in ENDS:
        return Tenancy()
    spec = read_object(workspace / "config" / f"{run}.json") or {}
    since = record.get("since")
    return Tenancy(
        run,
        away=str(record.get("away") or ""),
        since=datetime.fromisoformat(since) if since else None,
        lends=bool(spec.get("lend")),
    )
