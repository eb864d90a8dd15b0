"""Decides when a person wants to know of a link that became slow."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hearth.base.files import tail
from hearth.notify.progress import METRICS
from hearth.plan.slow_links import SlowLinks

QUIET = 3600.0
"""Seconds between two messages on the same links: a bad cable may come and go all night."""

_TAIL = 1 << 16
"""Bytes at the end of a record that have its newest step."""

_STEP = '{"kind": "step"'


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
    with suppress(OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        *lines, _ = tail(results / METRICS, _TAIL).split("\n")
        newest = next((line for line in reversed(lines) if line.startswith(_STEP)), "{}")
        return SlowLinks.from_record(json.loads(newest).get("slow_links"))
    return None
