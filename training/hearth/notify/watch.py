"""Decides when a run has waited so long for nodes that a person wants to know. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

PATIENCE = 120.0
"""Seconds of waiting before a message: a machine that only restarts is back by then."""


@dataclass(frozen=True)
class Waits:
    """The run has waited for these nodes since a time, and a person should know."""

    nodes: tuple[str, ...]
    since: float


@dataclass(frozen=True)
class GoesOn:
    """The run goes on after a wait for these nodes that a person was told of."""

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
