"""A check of a node, and its result. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from hearth_controller.doctor.node import ExaminedNode, NodeGroup, Part

Outcome = Literal["good", "degraded", "broken", "not applicable", "not checked"]


@dataclass(frozen=True)
class Finding:
    """The result of a check: the observation, and for a problem its importance and its fix.

    `mends` names the repair of `-e fix=on`: a stage of provisioning or `leftovers`, or '' if a
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


@dataclass(frozen=True)
class Check:
    """A check: its `name`, the function that examines a node, and the facts that it needs.

    `home`: it looks for side effects of a home, which train.yml also reports at its start.
    """

    name: str
    examine: Callable[[ExaminedNode, NodeGroup], Finding]
    needs: Part | None = None
    home: bool = False

    @property
    def good(self) -> str:
        """The state of a node that passes, from the docstring of the function."""
        return " ".join((self.examine.__doc__ or "as provisioning leaves it").split())

    def of(self, node: ExaminedNode, cluster: NodeGroup) -> Finding:
        """Check a node; the finding is `not checked` if the needed facts are missing."""
        if self.needs and (why := node.lacks(self.needs)):
            return not_checked(why)
        return self.examine(node, cluster)


def check(
    name: str, needs: Part | None = None, *, home: bool = False
) -> Callable[[Callable[[ExaminedNode, NodeGroup], Finding]], Check]:
    """Return a decorator that turns a function into the check `name` of doctor, see `Check`."""
    return lambda examine: Check(name, examine, needs, home)
