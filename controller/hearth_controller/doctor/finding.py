"""The result of a check on a node. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
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


good = partial(Finding, "good")
"""All is well."""

degraded = partial(Finding, "degraded")
"""Training works, but not as it could, or not for long."""

broken = partial(Finding, "broken")
"""Training does not work, or is held to a fraction of its speed."""

not_applicable = partial(Finding, "not applicable")
"""There is nothing to check here."""

not_checked = partial(Finding, "not checked")
"""It could not be checked, which is neither good nor bad."""
