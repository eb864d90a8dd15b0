"""Real supervisors of a run in place on loopback, with stand-ins of torchrun and of the ranks."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from support.supervisors import Nodes, free_port
from support.waiting import until

RANK = Path(__file__).with_name("stand_in_ranks.py")

TORCHRUN = '''\
#!{python}
"""Stands in for torchrun: starts the ranks, and names the first that failed."""
import os, signal, subprocess, sys, time

options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
script = next(word for word in sys.argv if word.endswith("train.py"))
count = int(options["--nproc-per-node"])
ranks = [
    subprocess.Popen(
        [sys.executable, script],
        env={{**os.environ, "LOCAL_RANK": str(n), "LOCAL_WORLD_SIZE": str(count)}},
        start_new_session=True,
    )
    for n in range(count)
]

def forward(sign, frame):
    for rank in ranks:
        rank.send_signal(sign)
    print("Traceback (most recent call last):", flush=True)
    print(f"torch.SignalException: Process {{os.getpid()}} got signal: {{sign}}", flush=True)
    os._exit(1)

signal.signal(signal.SIGTERM, forward)
while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
    time.sleep(0.02)
for n, rank in enumerate(ranks):
    if rank.poll():
        print(
            "\\nRoot Cause (first observed failure):\\n[0]:\\n"
            f"  rank      : {{n}} (local_rank: {{n}})\\n  exitcode  : {{rank.poll()}} (pid: 1)",
            flush=True,
        )
        for other in ranks:
            other.kill()
        sys.exit(1)
'''


class Team(Nodes):
    """The nodes `node0`, `node1` … of a run in place, on 127.0.0.1, 127.0.0.2 …"""

    def __init__(self, folder: Path, count: int, nproc: int = 1, **settings: Any) -> None:
        self._nproc = nproc
        torchrun = folder / "stand-in-torchrun-of-a-node"
        torchrun.write_text(TORCHRUN.format(python=sys.executable))
        torchrun.chmod(0o755)
        usual = {
            "resident": True,
            "ports": [free_port() for _ in range(count)],
            "nproc": nproc,
            "nprocs": [nproc] * count,
            "python": str(torchrun),
            "silence_timeout": 8,
            "return_timeout": 60,
            "elastic": True,
            "lend": {"when": ""},
        }
        super().__init__(folder, count, RANK.read_text(), **{**usual, **settings})

    def results(self, node: str) -> Path:
        return self.workspace(node) / "results" / self.run

    def steps(self, node: str) -> list[tuple[int, int, int, int]]:
        """Return (generation, rank, size of the group, step) of all steps of a node's ranks."""
        found = re.findall(
            r"^generation (\d+) rank (\d+) of (\d+) step (\d+)$", self.log(node), re.M
        )
        return [tuple(map(int, each)) for each in found]

    def until_group(self, *nodes: str, beyond: int = 0) -> int:
        """Wait until these nodes (all) take steps as a group; return its generation.

        The generation is higher than `beyond`.
        """
        nodes = nodes or tuple(self.names)
        size = self._nproc * len(nodes)
        found: list[int] = []

        def together() -> bool:
            last = [self.steps(node)[-1] for node in nodes if self.steps(node)]
            found[:] = [each[0] for each in last]
            sizes = {each[2] for each in last}
            return len(last) == len(nodes) and len({*found}) == 1 and sizes == {size}

        until(lambda: together() and found[0] > beyond)
        return found[0]

    def finish(self, *nodes: str) -> dict[str, dict[str, Any]]:
        """Let the ranks end; return the records of the nodes."""
        for node in nodes or self.names:
            (self.results(node) / "enough").touch()
        return self.wait(*nodes)

    def every_step_once(self, *nodes: str) -> None:
        """Assert that the ranks of these nodes together did each step in one group only."""
        groups: dict[int, set[int]] = {}
        for node in nodes or self.names:
            for generation, _, _, step in self.steps(node):
                groups.setdefault(step, set()).add(generation)
        assert [*groups] and {*groups} == {*range(1, max(groups) + 1)}
        assert all(len(generations) == 1 for generations in groups.values())
