"""Nodes that train one run together in place: real supervisors, torchrun, ranks and trainer.

One process must learn the same from the same global batches, whatever is lost on the way
(`differences`).
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors.torch import load_file

from hearth.config import resolve_run, write_run
from hearth.config.layout import staged_name
from hearth.record.lines import METRICS
from support.cables import Cables
from support.metric_lines import records_in
from support.programs import stand_in
from support.ranks import apart, arguments_of, beginning, change, furthest, metrics, trained
from support.supervisors import TRAINING, Nodes, free_port
from support.waiting import HANG

UNIT = "hearth-first.service"
DISK = "1300m"
"""Size of a node's disk, if it has one of its own: a run begins with 1 GiB of room at least."""

_CONCLUDED_WITHIN = 15.0
"""Seconds until supervisors end that know that the run has failed."""

_TAIL = 1 << 17
"""Bytes at the end of a record that are read again and again while a test waits."""

TINY_WORK: dict[str, Any] = {
    "sequence_length": 96, "packing": True, "global_batch": 6, "micro_batch": 1, "split": "equal",
    "lora_rank": 4,
    "schedule": "constant_with_warmup", "learning_rate": 1e-5, "clip_norm": 0, "precision": "fp64",
    "warmup_steps": 5, "max_steps": 1_000_000, "checkpoint_every": 20, "eval_held_out": False,
    "wandb": "off",
}  # fmt: skip
"""Settings of a run that only a stop ends: no step knows which is the last."""


@dataclass(frozen=True)
class Pace:
    """Seconds that a stand-in of a large model sleeps.

    In a load, for a row, in a checkpoint, and for rows of a held-out evaluation.
    """

    load: float = 0.0
    row: float = 0.0
    disk: float = 0.0
    evaluation: float = 0.0

    @property
    def variables(self) -> dict[str, str]:
        return {f"STAND_IN_{name.upper()}": str(each) for name, each in vars(self).items()}


@dataclass(frozen=True)
class Step:
    """A step on record: when it was done (ISO 8601), its number, and the rows of each node."""

    time: str
    number: int
    rows: tuple[int, ...]

    @property
    def together(self) -> int:
        """The number of ranks that took part with rows of their own."""
        return sum(1 for each in self.rows if each)


class Assembly(Nodes):
    """Nodes with the real training code, a tiny model and data, whose survivors go on in place.

    `work` has the run's settings. With `cables` each node has a network of its own, with `disks` a
    small file system; both need root.
    """

    def __init__(
        self,
        folder: Path,
        work: Mapping[str, Any],
        count: int = 3,
        pace: Pace = Pace(),
        cables: Cables | None = None,
        disks: bool = False,
        **settings: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.cables = cables
        self._mounted: list[Path] = []
        self._given = {"run": "first", **work}
        self._resolved = resolve_run(self._given, folder / "runs")
        places = [f"node{number}" for number in range(count)]
        if disks:
            for place in places:
                self._mount(folder / place)
        try:
            super().__init__(
                folder, count, "", **self._spec_of(count, pace) | {"return_timeout": 600} | settings
            )
            for node in self.names:
                self._furnish(node)
        except BaseException:
            self._unmount()
            raise
        # A supervisor that gets SIGTERM takes its machine to be going down, and leaves in order.
        programs = stand_in(folder / "programs/systemctl", "echo stopping").parent
        self.variables["PATH"] = f"{programs}:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/bin"
        self.options = ("--unit", UNIT)

    def _spec_of(self, count: int, pace: Pace) -> dict[str, Any]:
        addresses = [f"127.0.0.{number}" for number in range(1, count + 1)]
        if self.cables:
            addresses = self.cables.addresses
        ports = [free_port() for _ in addresses]
        return {
            "addresses": addresses,
            "ports": ports,
            "nprocs": [1] * count,
            "resident": True,
            "elastic": True,
            "python": sys.executable,
            "environment": {"OMP_NUM_THREADS": "1", **pace.variables},
        }

    def _furnish(self, node: str) -> None:
        """Put code, data and the run's file into a node's workspace."""
        self.change(node, script="scripts/slow_trainer.py")
        workspace = self.workspace(node)
        for name in ("hearth", "presets", "train_distributed.py"):
            (workspace / "scripts" / name).symlink_to(TRAINING / name)
        shutil.copy(Path(__file__).with_name("slow_trainer.py"), workspace / "scripts")
        (workspace / "data").mkdir()
        for name, checksum in self._resolved.data_checksums.items():
            assert checksum
            shutil.copy(name, workspace / "data" / staged_name(checksum, name))
        write_run(self._resolved, self.results(node) / "run.yml")

    def results(self, node: str) -> Path:
        """Return the folder of the run on a node."""
        return self.workspace(node) / "results/first"

    def checkpoints(self, node: str) -> list[Path]:
        """Return the checkpoints of a node."""
        return sorted((self.workspace(node) / "checkpoints" / self.run).glob("step-*"))

    def wrapping(self, node: str) -> list[str]:
        """Return the words that a node's command begins with: those of its network."""
        return self.cables.words(node) if self.cables else []

    # ---------------------------------------------------------------- what is done to a node

    def kill_rank(self, node: str) -> None:
        """Kill (-9) a node's rank, if it has one."""
        with suppress(IndexError, psutil.NoSuchProcess):
            self.rank(node).kill()

    def kill_torchrun(self, node: str) -> None:
        """Kill (-9) a node's torchrun, if it has one; the rank stays."""
        with suppress(IndexError, psutil.NoSuchProcess):
            self.torchrun(node).kill()

    def lose(self, *nodes: str) -> None:
        """Have nodes lose their power: no process of theirs has the time to say a word."""
        dying = [process for node in nodes for process in self._everybody(node)]
        for process in dying:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        for process in dying:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for node in nodes:
            self.supervisor(node).wait(HANG)

    def wipe(self, node: str) -> None:
        """Have a node that is off lose what the run has written there."""
        results = self.results(node)
        kept = (results / "run.yml").read_text()
        shutil.rmtree(results)
        shutil.rmtree(self.workspace(node) / "checkpoints", ignore_errors=True)
        results.mkdir()
        (results / "run.yml").write_text(kept)

    def hang(self, node: str) -> None:
        """Stop (SIGSTOP) a node's rank, if it has one: its supervisor lives and is heard."""
        with suppress(IndexError, psutil.NoSuchProcess):
            self.rank(node).suspend()

    def freeze(self, node: str) -> None:
        """Stop (SIGSTOP) a node's supervisor, torchrun and rank: nothing is heard of it."""
        for process in self._everybody(node):
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self, node: str) -> None:
        """Let a node go on after `freeze`."""
        for process in self._everybody(node):
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def leave(self, node: str) -> None:
        """Have a node leave in order, as one that is shut down: its supervisor will end."""
        self.supervisor(node).terminate()

    def fill(self, node: str) -> None:
        """Fill a node's disk to the last byte, again where it has been."""
        with self._filler(node).open("ab", buffering=0) as file:
            room = os.statvfs(self.workspace(node))
            # Asked for more than there is left by then, it would allocate nothing.
            if most := room.f_bavail * room.f_frsize * 9 // 10:
                os.posix_fallocate(file.fileno(), file.tell(), most)
            try:
                while True:
                    file.write(b"\0" * 4096)
            except OSError as error:
                assert error.errno == errno.ENOSPC, error

    def free(self, node: str) -> None:
        """Free a node's disk again after `fill`."""
        self._filler(node).unlink(missing_ok=True)

    def again(self) -> None:
        """Start all nodes after a run that failed, as a person's `resume` does.

        Nodes that were away when it failed, and wait for the others now, are stopped first.
        """
        for node in self.names:
            with suppress(subprocess.TimeoutExpired):
                self.supervisor(node).wait(_CONCLUDED_WITHIN)
            if self.supervisor(node).poll() is None:
                self.stop(node, "--now")
                self.supervisor(node).wait(HANG)
        records = [self.results(node) / "supervisor.json" for node in self.names]
        known = [json.loads(record.read_text()) for record in records if record.exists()]
        generation = 1 + max(record["generation"] for record in known)
        for node, record in zip(self.names, records, strict=True):
            self.change(node, generation=generation)
            record.unlink(missing_ok=True)
        self.start()

    # ---------------------------------------------------------------- what is seen of a run

    def lines(self, node: str, last: int = 0) -> list[dict[str, Any]]:
        """Return the whole lines of a node's metrics: all, or those in the `last` bytes."""
        try:
            with (self.results(node) / METRICS).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                begin = max(0, size - last) if last else 0
                file.seek(begin)
                text = file.read().decode()
        except FileNotFoundError:
            return []
        if begin:
            text = text.partition("\n")[2]
        return records_in(text)

    def steps(self, node: str, last: int = 0) -> list[Step]:
        """Return the steps on a node's record: all, or those in its `last` bytes."""
        return [
            Step(line["time"], line["step"], tuple(line["rows_by_rank"]))
            for line in self.lines(node, last)
            if line["kind"] == "step"
        ]

    def newest(self) -> int:
        """Return the highest step that any node has on record; 0 if there is none."""
        steps = [step for node in self.names for step in self.steps(node, _TAIL)]
        return max((step.number for step in steps), default=0)

    def is_loaded(self, node: str) -> bool:
        """Return whether the rank that a node started last has loaded the model."""
        return (self.results(node) / "loaded").exists()

    def until_together(
        self, after: int = 0, nodes: Sequence[str] | None = None, seconds: float = HANG
    ) -> Step:
        """Wait for a step beyond `after` that these nodes, all by default, take; return it."""
        wanted = {self.names.index(node) for node in nodes or self.names}
        end = time.monotonic() + seconds
        failed: list[str] = []
        while time.monotonic() < end and not failed:
            found = [
                step
                for node in nodes or self.names
                for step in self.steps(node, _TAIL)
                if step.number > after and {n for n, rows in enumerate(step.rows) if rows} == wanted
            ]
            if found:
                return min(found, key=lambda step: step.number)
            failed = [node for node in self.names if self.has_failed(node)]
            time.sleep(0.1)
        who = ", ".join(nodes or self.names)
        why = f"failed on {', '.join(failed)}" if failed else f"not within {seconds:g} s"
        raise AssertionError(f"no step of {who} beyond {after}: {why}\n{self.log_tails()}")

    def has_failed(self, node: str) -> bool:
        """Return whether a node's supervisor has ended the run as failed."""
        try:
            return bool(self.record(node)["state"] == "failed")
        except (OSError, ValueError):  # a node that has lost its disk
            return False

    def log_tails(self, lines: int = 40) -> str:
        """Return the end of each node's log."""
        return "\n".join(
            f"--- {node}\n" + "\n".join(self.log(node).splitlines()[-lines:])
            for node in self.names
            if (self.workspace(node) / "logs/first.log").exists()
        )

    def end(self) -> int:
        """Stop the run, which must end well on every node; return its number of steps."""
        self.stop(self.names[0])
        for node, record in self.wait().items():
            assert record["state"] == "stopped", f"{node}: {record['cause']}\n{self.log_tails()}"
        steps = {node: [step.number for step in self.steps(node)] for node in self.names}
        last = max(steps[self.names[0]])
        for node, numbers in steps.items():
            assert numbers == list(range(1, last + 1)), f"{node}: {_amiss(numbers)}"
        return last

    def learned(self, node: str) -> dict[str, torch.Tensor]:
        """Return the adapter that a node has at the end."""
        return load_file(self.results(node) / "adapter/adapter_model.safetensors")

    def differences(self, folder: Path) -> dict[str, float]:
        """Train the run's steps in one process in `folder`; return how far the run is from it.

        `furthest` is the largest difference of a number of the adapters, on any node; `apart` the
        distance of their changes since the beginning, relative to the change; `loss` the largest
        relative difference of a step's loss.
        """
        last = self.steps(self.names[0])[-1].number
        given = {name: value for name, value in self._given.items() if name != "run"}
        given |= {"max_steps": last, "micro_batch": 64, "checkpoint_every": 1_000_000}
        expected = trained(folder, "alone", 1, *arguments_of(given))
        begun = beginning(given)
        found = [self.learned(node) for node in self.names]
        moved = [change(each, begun) for each in found]
        losses = zip(
            *(
                [step["loss"] for step in metrics(run, "step")]
                for run in (self.results(self.names[0]), folder / "runs/alone")
            ),
            strict=True,
        )
        return {
            "steps": last,
            "furthest": max(furthest(each, expected) for each in found),
            "apart": max(apart(each, change(expected, begun)) for each in moved),
            "loss": max(abs(one / other - 1) for one, other in losses),
        }

    def close(self) -> None:
        for node in self.names:
            with suppress(KeyError, psutil.Error):
                self.thaw(node)
        super().close()
        self._unmount()

    def _everybody(self, node: str) -> list[psutil.Process]:
        """Return a node's processes, the supervisor first."""
        supervisor = self._children.get(node)
        first = [psutil.Process(supervisor.pid)] if supervisor and not supervisor.poll() else []
        return [*first, *self.processes(node)]

    def _filler(self, node: str) -> Path:
        return self.workspace(node) / "something-else-that-is-large"

    def _mount(self, place: Path) -> None:
        place.mkdir()
        size = f"size={DISK}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", place], check=True, timeout=10)
        self._mounted.append(place)

    def _unmount(self) -> None:
        for place in self._mounted:
            subprocess.run(["umount", "--lazy", place], check=True, timeout=10)
        self._mounted.clear()


def _amiss(numbers: Sequence[int]) -> str:
    """Return the faults of a record that should have each step once, in order."""
    again = sorted({each for each in numbers if numbers.count(each) > 1})[:5]
    missing = sorted(set(range(1, max(numbers, default=0) + 1)) - set(numbers))[:5]
    return f"{len(numbers)} steps; again: {again}; missing: {missing}; last: {numbers[-3:]}"
