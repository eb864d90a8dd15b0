"""Decides when a person wants to know of a link that became slow."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hearth.plan.slow_links import SlowLinks
from hearth.record.lines import METRICS, newest_step

QUIET = 3600.0
"""Seconds between two messages on the same links: a bad cable may come and go all night."""


@dataclass
class SlowLinkNews:
    """Follows the slow links of a run; any clock will do for its times."""

    _told: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)

    def observe(self, now: float, slow: SlowLinks | None) -> SlowLinks | None:
        """Return `slow`, the links that are slow now, if a person does not know of them yet."""
        if slow is None:
            return None
        last = self._told.get(slow.hops)
        self._told[slow.hops] = now
        return None if last is not None and now - last < QUIET else slow


def slow_links_now(results: Path) -> SlowLinks | None:
    """Return the slow links in the newest step of a run's record, None without any."""
    with suppress(LookupError, TypeError, ValueError, AttributeError):
        return SlowLinks.from_record(newest_step(results / METRICS).get("slow_links"))
    return None
