"""Machines of the lab with shares of a core and links of a speed, and the runs over them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.beside import places, speeds
from tests.bench.lab import CommandFailed, Lab

READY = "/opt/lab/venv/bin/python"
UNEQUAL = {"tower": 0.8, "laptop": 0.4, "oldbox": 0.2}
"""Shares of a core of 4:2:1. Together they leave a good part of two cores to everything else: where
machines wait for each other's cores, what they come to together says nothing."""

Figures = dict[str, dict[str, Any]]
"""Measurements by machine."""

_RESULTS = "/home/lab/ai-cluster/results"
_LOGS = "/home/lab/ai-cluster/logs"
_SPEEDS = "/home/lab/ai-cluster/data/speeds"
_RUN_SECONDS = 900
_SETTINGS = {"threads": 1, "checkpoint_every": 10_000, "wandb": "off"}


class Trained(NamedTuple):
    """A finished run: the output of its play, and the lines of its metrics.jsonl."""

    said: str
    record: list[dict[str, Any]]


class Cluster(Lab):
    """The machines, and the runs over them.

    `folder`, of what the runs need and leave, is not below /tmp, which a machine has for itself;
    `shares` are of a core; all machines are given `paths` (the model and so on), as they are here.
    """

    def __init__(
        self, folder: Path, shares: Mapping[str, float], link: str, paths: Sequence[Path]
    ) -> None:
        super().__init__(len(shares), folder, READY)
        self.runs = 0
        self._folder, self._link, self._paths = folder, link, paths
        self.shares = dict(shares)
        self._measured: set[tuple[str, bool]] = set()
        self._naming = threading.Lock()

    @contextlib.contextmanager
    def up_and_ready(self) -> Iterator[None]:
        """Have the machines booted and provisioned, with their shares, links and folders."""
        with self.ready(self._link):
            from support.lab import bring

            for path in self._paths:
                bring(path, self.names)
            for node, core in places(self.shares, os.cpu_count() or 1).items():
                self._hold_to(node, core)
                self.share(node, self.shares[node])
            yield

    def share(self, node: str, cores: float | None) -> None:
        """Hold a machine to `cores` cores; None gives it all of them."""
        self.do("cpu", node, "off" if cores is None else str(cores))

    def _hold_to(self, node: str, core: int) -> None:
        """Have all that runs on a machine, and all that it starts later, on one core."""
        everything = f"taskset --all-tasks --pid --cpu-list {core} ${{process#/proc/}}"
        self.inside(node, "sh", "-c", f"for process in /proc/[0-9]*; do {everything}; done")
        said = self.inside(node, "taskset", "--pid", "--cpu-list", "1").strip()
        if not said.endswith(f": {core}"):
            raise CommandFailed(f"{node} is not held to core {core}: {said}")

    def forget_speeds(self) -> None:
        """Have the next run measure the machines anew."""
        for node in self.names:
            self.inside(node, "rm", "-rf", _SPEEDS)
        self._measured.clear()

    def inside(self, node: str, *command: str) -> str:
        """Return a command's output on a machine, reached without its network; "" if it fails."""
        from hearth_lab import machine, plan

        its = machine.within(plan.machine_named(node))
        if not its:
            raise CommandFailed(f"{node} is off")  # else the command would run on this computer
        done = subprocess.run([*its, *command], capture_output=True, text=True)
        return done.stdout

    def next_run(self) -> str:
        return f"bench-{os.getpid()}-{self.runs + 1}"

    def train(self, nodes: Sequence[str], **settings: Any) -> Trained:
        with self._naming:
            run = self.next_run()
            self.runs += 1
        train = {**_SETTINGS, **settings, "run": run}
        # Where the speeds are known already, nothing before the first step is of interest. With
        # rounds of local steps, which want more memory, they are measured once more.
        measures = {(node, settings.get("sync_every", 1) > 1) for node in nodes}
        hurry = self._measured.issuperset(measures) or settings.get("split") == "equal"
        with self._all_cores_until_it_trains(run, nodes) if hurry else contextlib.nullcontext():
            # Not followed: whoever looks takes from what the machine has.
            said = self.play(
                "train.yml",
                *("-e", json.dumps({"train": train}), "-e", f"nodes={','.join(nodes)}"),
                *("-e", f"_plan_runs={self._folder / 'runs'}", "-e", "launch_ready_timeout=300"),
                *("-e", "wait=off"),
            )
            self._await(run, nodes)
        if settings.get("split") != "equal":
            self._measured |= measures
        lines = self.inside(nodes[0], "cat", f"{_RESULTS}/{run}/metrics.jsonl").splitlines()
        return Trained(said, [json.loads(line) for line in lines])

    def _await(self, run: str, nodes: Sequence[str]) -> None:
        """Return once a run has finished and its supervisors are gone."""
        until = time.monotonic() + _RUN_SECONDS
        waiting = list(nodes)
        while waiting:
            node = waiting[0]
            if time.monotonic() > until:
                raise CommandFailed(f"{run} did not end on {node}:\n{self._log(run, node)}")
            time.sleep(1)
            said = self.inside(node, "cat", f"{_RESULTS}/{run}/supervisor.json")
            record = json.loads(said) if said else {"state": "waiting"}
            if record["state"] in ("failed", "stopped"):
                raise CommandFailed(f"{run} {record['state']}:\n{self._log(run, node)}")
            over = record["state"] == "finished"
            if over and not self.inside(node, "sh", "-c", f"kill -0 {record['pid']} && echo lives"):
                waiting.remove(node)

    def _log(self, run: str, node: str) -> str:
        return self.inside(node, "tail", "--lines=30", f"{_LOGS}/{run}.log")

    def side_by_side(self, rows: Mapping[str, int], skipped: int, **settings: Any) -> Figures:
        """Train on each of the machines alone, all at the same time; return how fast each was.

        Each has its own `rows` a step; the first `skipped` steps of a run are not counted.
        """

        def alone(node: str) -> Sequence[Mapping[str, Any]]:
            return self.train([node], **settings, global_batch=rows[node]).record

        with ThreadPoolExecutor(len(rows)) as pool:
            records = dict(zip(rows, pool.map(alone, rows), strict=True))
        try:
            return speeds(records, skipped)
        except ValueError as error:
            raise CommandFailed(f"side by side: {error}") from error

    @contextlib.contextmanager
    def _all_cores_until_it_trains(self, run: str, nodes: Sequence[str]) -> Iterator[None]:
        """Lift the shares until the ranks load their model, which comes right before step 1."""
        log = f"{_LOGS}/{run}.log"

        def hold() -> None:
            for node in nodes:
                self.share(node, self.shares[node])

        for node in nodes:
            self.share(node, None)
        with self.once(lambda: self.inside(nodes[0], "grep", "^data: ", log) != "", hold):
            yield

    @contextlib.contextmanager
    def once(self, is_so: Callable[[], bool], action: Callable[[], None]) -> Iterator[None]:
        """Do something as soon as it is so, beside the block; at its end at the latest.

        Raises what `is_so` or `action` raised.
        """
        over = threading.Event()

        def watch() -> None:
            while not (over.wait(0.5) or is_so()):
                pass
            action()

        with ThreadPoolExecutor(1) as pool:
            watcher = pool.submit(watch)
            try:
                yield
            finally:
                over.set()
        watcher.result()
