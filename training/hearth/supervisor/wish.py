"""The wish of the house for this node's machine, as the other nodes hear of it. Pure."""

from __future__ import annotations

from hearth.supervisor.messages import RanksState


class Wish:
    """The wish of the house as the node's report tells it.

    Once the ranks were told to leave, the node is away before it returns: a wish that is over
    meanwhile still stands, or the others would take their end for that of the run.

    Attributes:
        why: the reason for which the house wants the machine now; "": it does not.
    """

    def __init__(self) -> None:
        self.why = ""
        self._told = ""

    def told(self, state: RanksState, ending: bool) -> str:
        """Return the reason to report; `ending`: whether the ranks were told to leave."""
        if self.why or state == "away" or not ending:
            self._told = self.why
        return self._told
