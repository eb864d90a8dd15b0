"""Division of the tests among the workers of a parallel run."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

ONE_WORKER = ("tests/unsloth",)
"""Rooms whose files go to one worker together: importing Unsloth takes as long as their tests."""


class ByFile(LoadFileScheduling):
    """Gives each file to one worker, and the whole of some rooms."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((room for room in ONE_WORKER if file.startswith(f"{room}/")), file)
