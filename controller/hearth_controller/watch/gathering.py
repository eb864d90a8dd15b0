"""The data of the live page: status.yml, played again and again, and a feed for each run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from hearth.base.errors import ConfigError
from hearth_controller.report.live import live_page
from hearth_controller.report.page import contents
from hearth_controller.report.read import RunFolder, read, read_under_way
from hearth_controller.runs.observed import UNDER_WAY
from hearth_controller.watch.child import Checkout, describe, play
from hearth_controller.watch.feed import Feed

_EVERY = 15.0
"""Seconds between two plays of status.yml, each of which takes 3 s of a core."""

_FRESH = 5.0
"""Seconds for which a drawn report is shown again though the run has gone on; drawing takes 1 s."""

_OF_A_RUN = ("run.yml", "metrics.jsonl", "ends.json")


class Gathering:
    """The state of a cluster, gathered in the background, and pages of it.

    `runs` is the folder with the folders of runs on this computer.
    """

    def __init__(self, checkout: Checkout, runs: Path) -> None:
        self._checkout, self._runs = checkout, runs
        self._status: Mapping[str, Any] = {}
        self._trouble = ""
        self._feeds: dict[str, Feed] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._drawn: dict[str, tuple[Hashable, float, Mapping[str, Any]]] = {}

    async def gather(self) -> None:
        """Gather until this is cancelled."""
        try:
            while True:
                answer = await play(self._checkout, "status", {})
                self._status = answer.facts or self._status
                self._trouble = "" if answer.facts else describe(answer)
                self._follow()
                await asyncio.sleep(_EVERY)
        finally:
            tasks = [*self._following.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def page(self, name: str = "") -> str | None:
        """Return the page of a run, by default of the newest; None if no such run is known."""
        local = self._local()
        names = [run["name"] for run in self._status.get("runs", [])]
        if name and name not in (*names, *local):
            return None
        chosen = name or next(iter([*names, *local]), "")
        report = self._report(chosen) if chosen else None
        return live_page(self._status, self._trouble, chosen, report, local)

    def _follow(self) -> None:
        """Follow each run that is under way."""
        for name, state in self._states().items():
            following = self._following.get(name)
            if state == "queued" or (following and not following.done()):
                continue
            self._feeds[name] = Feed(self._checkout, name)
            self._following[name] = asyncio.create_task(self._feeds[name].follow())

    def _states(self) -> dict[str, str]:
        """Return the states of the runs under way by name."""
        runs = self._status.get("runs", [])
        return {run["name"]: run["state"] for run in runs if run["state"] in UNDER_WAY}

    def _local(self) -> list[str]:
        """Return the runs that have a folder on this computer, the newest first."""
        folders = [each for each in self._runs.glob("*") if any(_stamps(each))]
        return [each.name for each in sorted(folders, key=lambda each: -max(_stamps(each)))]

    def _report(self, name: str) -> Mapping[str, Any] | None:
        """Return the contents of the report of a known run, None if nothing of it is here."""
        feed, state = self._feeds.get(name), self._states().get(name, "")
        live = feed if state and feed and feed.answer is None else None
        key = (state, live.view.version) if live else ("", *_stamps(self._runs / name))
        before, drawn, report = self._drawn.get(name, (None, 0.0, {}))
        if before == key or (live and time.monotonic() - drawn < _FRESH and report):
            return report
        try:
            known = self._known(name, live, state)
        except ConfigError:
            return None
        self._drawn[name] = key, time.monotonic(), contents(known)
        return self._drawn[name][2]

    def _known(self, name: str, live: Feed | None, state: str) -> RunFolder:
        """Read a run: its story from the feed while it is under way."""
        folder = self._runs / name
        return read_under_way(folder, live.view.story, state) if live else read(folder)


def _stamps(folder: Path) -> list[int]:
    """Return when each of a run's files last changed, 0 for one that is missing."""
    files = [folder / name for name in _OF_A_RUN]
    return [file.stat().st_mtime_ns if file.is_file() else 0 for file in files]
