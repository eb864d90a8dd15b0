"""A run on the machines of the lab: begun without anybody who watches, and what each has of it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.lab import READY, Controller, at_home, bring, machines, of_the_first
from support.metric_lines import records_in
from support.waiting import until

_RANK = "[t]rain_distributed.py --run-file"


@contextmanager
def cluster(
    folder: Path, names: Sequence[str], model: Path, data: Path, *options: str
) -> Iterator[Controller]:
    """Have a controller and the lab's first machines, provisioned and with a model.

    The lab comes up with these `options`.
    """
    # Not below /tmp, which a machine forgets when it boots.
    kept = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="hearth-test-"))
    try:
        there = Path(shutil.copytree(model, kept / "tiny"))
        controller = Controller(folder, there, data, of_the_first(len(names), folder / "inventory"))
        with machines(len(names), *options):
            stages = ("playbooks/provision/preflight.yml", "playbooks/provision/workspace.yml")
            controller.play(*stages, *READY)
            bring(there, names)
            yield controller
    finally:
        shutil.rmtree(kept)


def start(controller: Controller, run: str, *words: str, **settings: object) -> None:
    # A wrong password for sudo: training asks for none.
    unwatched = ("-e", f"run={run}", "-e", "wait=off", "-e", "ansible_become_password=wrong")
    options = (*unwatched, *words, *controller.tiny(eval_held_out=False, **settings))
    controller.play("train.yml", *READY, *options)


def end(nodes: Sequence[str], runs: Sequence[str]) -> None:
    """End these runs at once, come what may."""
    for node in nodes:
        for run in runs:
            at_home(node, f"systemctl --user stop hearth-{run}.service")


def record(node: str, run: str) -> dict:
    return json.loads(at_home(node, f"cat ai-cluster/results/{run}/supervisor.json"))


def until_state(state: str, run: str, nodes: Sequence[str]) -> None:
    for node in nodes:
        until(lambda node=node: record(node, run)["state"] == state)


def units(node: str) -> str:
    """Return leftovers of runs in the user's systemd, its folder and the process list."""
    return at_home(
        node,
        "systemctl --user list-units --all --no-legend 'hearth-*';"
        "find ~/.config/systemd -name 'hearth-*'; pgrep -af '[h]earth.supervise' || true",
    )


def ranks(node: str) -> list[int]:
    """Return the processes of torchrun and its ranks on a node."""
    return [int(pid) for pid in at_home(node, f"pgrep -f '{_RANK}' || true").split()]


def lines(node: str, run: str, last: int = 0) -> list[dict]:
    """Return a run's metrics as a node has them: all lines, or the `last` ones."""
    metrics = f"ai-cluster/results/{run}/metrics.jsonl"
    said = at_home(node, f"tail --lines={last or '+1'} {metrics} 2>/dev/null || true")
    return records_in(said)


def until_step(run: str, step: int, node: str = "tower") -> None:
    """Wait until a node, rank 0's by default, has this step on record."""
    metrics = f"ai-cluster/results/{run}/metrics.jsonl"
    found = f'grep -c \'"kind": "step".*"step": {step},\' {metrics} || true'
    until(lambda: int(at_home(node, found)) > 0)


def newest(node: str, run: str) -> int:
    """Return the newest step on a node's record; 0 if there is none."""
    return max((line["step"] for line in lines(node, run, 20) if line["kind"] == "step"), default=0)


def until_together(run: str, after: int, nodes: Sequence[str], of: Sequence[str]) -> dict:
    """Wait for a step beyond `after` that a group of these nodes takes, all with rows.

    `of` are the run's nodes, each of one rank. A node of the group may have no row in a short step,
    so the rows alone do not tell who is away. Returns the line of the first such step, as the first
    of these nodes has it.
    """

    def taken() -> list[dict]:
        found, group = [], []
        for line in lines(nodes[0], run):
            if line["kind"] == "start":
                group = [rank["node"] for rank in line["ranks"]]
            elif line["kind"] == "team":
                group = line["nodes"]
            elif line["kind"] == "step" and line["step"] > after and group == [*nodes]:
                rows = zip(of, line["rows_by_rank"], strict=True)
                found += [line] * ([node for node, count in rows if count] == group)
        return found

    until(taken)
    return taken()[0]


def steps(run: str, node: str = "tower") -> list[int]:
    return [line["step"] for line in lines(node, run) if line["kind"] == "step"]


def learned(node: str, run: str) -> str:
    """Return the checksum of the adapter that a run left on a node."""
    return checksum(node, f"ai-cluster/results/{run}/adapter/adapter_model.safetensors")


def checksum(node: str, file: str) -> str:
    """Return the SHA-256 of a file in a machine's home, which must be there."""
    digest, _, _ = at_home(node, f"sha256sum {file}").partition(" ")
    assert len(digest) == 64, digest
    return digest
