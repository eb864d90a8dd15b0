"""Weights & Biases beside a run: a thread starts it and sends the run's log, in order.

However slow it is, and despite any error, the training goes on, and other ranks never wait for it.
"""

from __future__ import annotations

import functools
import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hearth.config import Run

AT_END = 160.0
"""Seconds at the end of a run until all is sent; wandb itself gives up a start after 90."""

_AFTER_FAILURE = 20.0
"""Seconds of it at the end of a run that failed, whose nodes are to be free soon."""

_UPLOAD = 60.0
"""Seconds at the end of a run for wandb's last lines; `wandb sync` sends the rest."""

_MOST = 20_000
"""Lines that wait at most: about 60 MB."""

_ELSEWHERE = "metrics.jsonl and TensorBoard have everything"


class WeightsAndBiases:
    """The curves of one run at Weights & Biases, for the time that this rank leads.

    It may be left and begun again, and then goes on with the same run there.
    """

    def __init__(self, run: Run, folder: Path) -> None:
        self._settings = run.settings
        self._how = {
            "project": run.settings.wandb_project,
            "name": run.name,
            "id": run.name,
            "dir": str(folder),
            "config": run.settings.model_dump(mode="json"),
        }
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._online: Any = None
        self._given_up = self._begun = False
        self._thread = threading.Thread(target=self._work, name="wandb", daemon=True)

    def begin(self) -> None:
        """Start it, unless the run does not want it."""
        if self._settings.wandb != "off":
            if not self._thread.is_alive():
                self._thread.start()
            self._begun = True
            self._calls.put(self._start)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Send the `numbers` of a step as soon as may be."""
        if self._begun and not self._given_up:
            self._calls.put(lambda: self._online.log(numbers, step=step))
            if self._calls.qsize() > _MOST:
                self._give_up(f"it has not taken the last {_MOST} lines")

    def leave(self, failed: bool) -> None:
        """End its run once the rest is sent; `failed`: whether the training failed."""
        if self._begun:
            self._begun = False
            self._calls.put(functools.partial(self._finish, failed))

    def close(self, failed: bool) -> None:
        """End its run, and wait for that, but not for ever."""
        self.leave(failed)
        if self._thread.is_alive():
            self._calls.put(None)
            seconds = min(_AFTER_FAILURE, AT_END) if failed else AT_END
            self._thread.join(seconds)
            if self._thread.is_alive():
                self._give_up(f"it did not take the last lines within {seconds:g} s")

    def _work(self) -> None:
        """Make the calls one after another, until the end or an error; this is the thread."""
        while call := self._calls.get():
            if self._given_up:
                continue
            try:
                call()
            except (Exception, SystemExit) as error:  # whatever it is, it is not the training's
                self._give_up(f"{type(error).__name__}: {error}")

    def _give_up(self, why: str) -> None:
        """Send nothing more, and say so once."""
        if not self._given_up:
            self._given_up = True
            print(f"wandb: the run goes on without it ({why}); {_ELSEWHERE}", flush=True)

    def _start(self) -> None:
        """Start a run of it: online if that is wanted and works, else offline."""
        import wandb  # takes seconds

        logging.getLogger("wandb").setLevel(logging.ERROR)
        how = wandb.Settings(silent=True, finish_timeout=_UPLOAD)
        init = functools.partial(wandb.init, **self._how, settings=how)
        wanted, key = self._settings.wandb, os.environ.get("WANDB_API_KEY")
        if wanted == "online" or (wanted == "auto" and key):
            try:
                self._online = init(mode="online", resume="allow")
                return
            except (Exception, SystemExit) as error:
                print(
                    f"wandb: staying offline, since Weights & Biases does not take this run "
                    f"({error}); check WANDB_API_KEY and the network, then `wandb sync`",
                    flush=True,
                )
                # To wandb, the run that was refused is in use as long as this process lives.
                init.keywords["id"] += "-offline"
        self._online = init(mode="offline")

    def _finish(self, failed: bool) -> None:
        """End its run."""
        online, self._online = self._online, None
        online.finish(exit_code=int(failed))
