"""The result of a check on a node. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["good", "degraded", "broken", "not applicable", "not checked"]


@dataclass(frozen=True)
class Finding:
    """The result of a check: the observation, and for a problem its importance and its fix.

    `mends` names the repair of `-e fix=true`: a stage of provisioning or `leftovers`, or '' if a
    person has to do it.
    """

    outcome: Outcome
    seen: str
    why: str = ""
    fix: str = ""
    mends: str = ""


def good(seen: str) -> Finding:
    """All is well."""
    return Finding("good", seen)


def degraded(seen: str, why: str, fix: str, mends: str = "") -> Finding:
    """Training works, but not as it could, or not for long."""
    return Finding("degraded", seen, why, fix, mends)


def broken(seen: str, why: str, fix: str, mends: str = "") -> Finding:
    """Training does not work, or is held to a fraction of its speed."""
    return Finding("broken", seen, why, fix, mends)


def not_applicable(why: str) -> Finding:
    """There is nothing to check here."""
    return Finding("not applicable", why)


def not_checked(why: str) -> Finding:
    """It could not be checked, which is neither good nor bad."""
    return Finding("not checked", why)
