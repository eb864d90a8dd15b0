"""Decides when people are told that a run waits for nodes, or that a link became slow."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hearth.plan.slow_links import SlowLinks
from hearth.record.lines import METRICS, newest_step

PATIENCE = 120.0
"""Seconds of waiting before a message: a machine that only restarts is back by then."""


@dataclass(frozen=True)
class Waits:
    """The run has waited for these nodes since a time, and a person should know."""

    nodes: tuple[str, ...]
    since: float


@dataclass(frozen=True)
class GoesOn:
    """The run goes on after a reported wait for these nodes."""

    nodes: tuple[str, ...]
    since: float


@dataclass
class WaitWatch:
    """Follows the state of a run on one node; any clock will do for its times."""

    _since: float | None = field(init=False, default=None)
    _said: tuple[str, ...] = field(init=False, default=())

    def observe(self, now: float, trains: bool, missing: tuple[str, ...]) -> Waits | GoesOn | None:
        """Return a change that a person wants to know of, or None.

        `trains` is whether the run trains now, `missing` are the nodes that it waits for.
        """
        if trains:
            since, waited_for = self._since, self._said
            self._since, self._said = None, ()
            return GoesOn(waited_for, since) if since is not None and waited_for else None
        if not missing and not self._said:
            self._since = None  # all are here, and their ranks load
        elif self._since is None:
            self._since = now
        elif not self._said and now - self._since >= PATIENCE:
            self._said = missing
            return Waits(missing, self._since)
        return None


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
