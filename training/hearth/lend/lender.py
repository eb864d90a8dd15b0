"""The decision whether a node lends now or stays away. Pure: times and readings are handed in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hearth.base.clock import when
from hearth.lend.choice import OFF, ON, Choice
from hearth.lend.terms import Terms
from hearth.lend.use import Reading, certain_use, likely_use

_IN_A_ROW = 2
"""Readings in a row that must show a likely use: a leave costs the start of the ranks."""


class Lender:
    """A node's decisions, one reading after another.

    It leaves at once, and returns when nobody has wanted the machine for the quiet time: so use
    that comes and goes takes it away at most once in that time. A person's word and the hours need
    no quiet time.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._quiet_time = timedelta(minutes=terms.after_minutes)
        self._in_a_row = 0  # readings that showed a likely use
        self._likely = ""  # the first of them in words, kept so that a reason does not flicker
        self._used: float | None = None  # time of the last reading that showed use
        self._use = ""
        self._return = ""  # local time of the return, if nobody wants the machine again
        self._opening: datetime | None = None

    def decide(self, now: float, local: datetime, reading: Reading) -> str:
        """Return "" if the node lends, else the reason why it is away.

        `now` is in seconds of a clock that is never set, `local` the node's `local_time`. While
        nothing changes, neither does the reason.
        """
        used = self._use_in(reading)
        if used:
            self._used, self._use = now, used
            back = local.astimezone(UTC) + self._quiet_time
            self._return = f"{back.astimezone(local.tzinfo):%H:%M}"
        match reading.choice.at(local):
            case word if word == OFF:
                return _of_choice(reading.choice, local)
            case word if word == ON:
                return ""
        if not self._terms.hours.open_at(local):
            return self._closed(local)
        if used:
            return used
        if self._used is None or now - self._used >= self._quiet_time.total_seconds():
            return ""
        return f"{self._use}; quiet now, lends again at {self._return}"

    def _use_in(self, reading: Reading) -> str:
        """Return the use that a reading shows, with the ones before it, or ""."""
        likely = likely_use(reading)
        self._in_a_row = self._in_a_row + 1 if likely else 0
        if self._in_a_row <= 1:
            self._likely = likely
        return certain_use(reading) or (self._likely if self._in_a_row >= _IN_A_ROW else "")

    def _closed(self, local: datetime) -> str:
        if self._opening is None or local.timestamp() >= self._opening.timestamp():
            self._opening = self._terms.hours.next_opening(local)
        return f"its hours are {self._terms.hours}; lends again at {self._opening:%H:%M}"


def _of_choice(choice: Choice, local: datetime) -> str:
    if choice.trouble:
        return choice.trouble
    since = f" since {when(choice.since, local)}" if choice.since else ""
    until = f" until {when(choice.until, local)}" if choice.until else ""
    return f"switched off by hand{since}{until}"
