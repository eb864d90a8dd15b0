"""Measure the speed of unequal machines together, on the lab.

    sudo .venv/bin/python -m tests.bench.heterogeneous

boots three machines, under a name of its own, with shares of a core of 4:2:1 and links of 1 Gbit/s;
then three alike. All train together with the split by speed, then each for itself but at the same
time as the others (beside.py says why), then together with an equal split (with Hearth's packing
and its one exchange a step), then with the script of the common tutorials (tutorial.py). It takes
about half an hour on two otherwise idle cores.
"""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hearth_lab import plan
from tests.bench.beside import parts
from tests.bench.cluster import READY, UNEQUAL, Cluster, Figures, Trained
from tests.bench.command import Bench, turns
from tests.bench.heterogeneous.report import overall, table
from tests.bench.heterogeneous.work import LENGTH, make_work
from tests.bench.lab import ROOT, run
from tests.bench.paper import circumstances

TUTORIAL = Path(__file__).with_name("tutorial.py")
EQUAL = {"tower": 0.25, "laptop": 0.25, "oldbox": 0.25}
GLOBAL_BATCH = 64
EQUAL_BATCH = 66
"""Rows of a step on equal nodes: 64 over three is 22 for one of them, and so at most 0.970."""
FIGURES = Path(__file__).with_name("figures.json")
AT_ONCE = 3
"""Rows that the tutorial's script computes at once, 7 times a rank and step."""
SKIPPED = 5
"""Steps that are not counted: they pay for what later ones find ready, and the split, made from
what was measured in a few seconds, follows what the ranks then do."""
MORE = 5
"""Further steps of nodes that train for themselves, since they do not begin at the same moment."""


class Machines(Cluster):
    def __init__(self, folder: Path, shares: Mapping[str, float], rows: int = GLOBAL_BATCH) -> None:
        self.rows = rows
        self.model, self.data = make_work(folder, 4 * rows)
        data = {"dataset": str(self.data), "held_out": 0, "eval_held_out": False}
        self.work = data | {"model": str(self.model), "sequence_length": LENGTH}
        super().__init__(folder, shares, "1gbit", [self.model, self.data, TUTORIAL])

    def speed(self, nodes: Sequence[str], steps: int, split: str = "auto") -> dict[str, Any]:
        settings = {"split": split, "max_steps": steps, "global_batch": self.rows}
        return figures_of(self.train(nodes, **settings, **self.work))

    def alone(self, steps: int) -> Figures:
        """Train on each node for itself, all at the same time; return how fast each was."""
        rows = parts(self.shares, self.rows)
        return self.side_by_side(rows, SKIPPED, max_steps=steps, **self.work)

    def tutorial(self, steps: int) -> dict[str, Any]:
        machines = plan.nodes(len(self.names))
        rows = self.rows // len(machines) // AT_ONCE * AT_ONCE
        work = f"{TUTORIAL} {self.model} {self.data} {rows} {AT_ONCE} {steps}"

        def rank(number: int) -> str:
            command = (
                f"GLOO_SOCKET_IFNAME={machines[number].card} OMP_NUM_THREADS=1 "
                f"{READY} -m torch.distributed.run --nnodes {len(machines)} --nproc-per-node 1 "
                f"--node-rank {number} --master-addr {machines[0].address} --master-port 29555 "
                f"{work}"
            )
            reach = [str(ROOT / "scripts" / "lab"), "ssh", machines[number].name]
            return run([*reach, command], ROOT, self.environment)

        with ThreadPoolExecutor(len(machines)) as pool:
            said, *_ = pool.map(rank, range(len(machines)))
        seconds = json.loads(next(line for line in said.splitlines() if line.startswith("[")))
        counted = seconds[SKIPPED:]
        tokens = rows * len(machines) * LENGTH * len(counted)
        return {"tokens_per_second": tokens / sum(counted), "seconds": seconds}


def figures_of(trained: Trained) -> dict[str, Any]:
    """Return the measured speed of a run, overall and per step, and the predicted one."""
    names = (
        "tokens_per_second",
        "own_tokens_per_second_by_rank",
        "tokens",
        "rows_by_rank",
        "compute_seconds_by_rank",
        "wait_seconds_by_rank",
    )
    steps = [line for line in trained.record if line["kind"] == "step"][SKIPPED:]
    predicted = re.search(r"together (\d+) tokens/s", trained.said)
    return {
        "tokens_per_second": overall(steps),
        "predicted_tokens_per_second": float(predicted[1]) if predicted else None,
        "steps": [{name: step[name] for name in names} for step in steps],
    }


def sitting(machines: Machines, steps: int, repeat: int) -> dict[str, Any]:
    """Return the figures of each kind of run, repeats in a list.

    On equal machines an equal split is the split by speed, and one of them is enough.
    """
    names = machines.names
    unequal = len(set(machines.shares.values())) > 1
    found: dict[str, Any] = circumstances()
    found |= {"shares": machines.shares, "global_batch": machines.rows}
    found |= {"alone": {name: [] for name in names}, "equal": [], "by_speed": [], "tutorial": []}
    with machines.up_and_ready():
        print(f"bench: over {machines.shares}", flush=True)
        for turn in turns(repeat):
            found["by_speed"].append(machines.speed(names, steps))
            for name, its in machines.alone(steps + MORE).items():
                found["alone"][name].append(its)
            if unequal:
                found["equal"].append(machines.speed(names, steps, "equal"))
            if unequal and turn == 0:  # which is for information only
                found["tutorial"].append(machines.tutorial(steps))
    return found


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    """Return the figures of each sitting; of one that was not asked for, those that there are."""
    kinds = {"unequal": (UNEQUAL, GLOBAL_BATCH), "equal": (EQUAL, EQUAL_BATCH)}
    sittings = json.loads(FIGURES.read_text())["sittings"] if given.only else [{}, {}]
    for number, (name, kind) in enumerate(kinds.items()):
        if given.only in (None, name):
            place = folder / name
            place.mkdir()
            sittings[number] = sitting(Machines(place, *kind), given.steps, given.repeat)
    return {
        "model": f"A Llama of 8 layers with random weights, LoRA, rows of {LENGTH} tokens",
        "at_once": AT_ONCE,
        "skipped": SKIPPED,
        "sittings": sittings,
    }


if __name__ == "__main__":
    bench = Bench("heterogeneous", __doc__, table, lab=True)
    bench.option("--repeat", type=int, default=3, help="runs of a kind (default: 3)")
    bench.option("--steps", type=int, default=16, help="steps of a run (default: 16)")
    bench.option(
        "--only", choices=["unequal", "equal"], help="measure one of the two sittings anew"
    )
    bench.run(measure)
