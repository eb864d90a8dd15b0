"""Measure what unequal machines come to together, on the lab.

    sudo .venv/bin/python -m tests.bench.heterogeneous

boots three machines, under a name of its own, with shares of a core of 4:2:1 and links of 1 Gbit/s;
then three alike. Each trains alone, then all of them with an equal split (with Hearth's packing and
its one exchange a step), then with the split by speed, then with the script of the common tutorials
(tutorial.py). It writes the raw figures beside itself and the table into docs/benchmarks.md. It
takes most of an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.bench.heterogeneous.report import table
from tests.bench.heterogeneous.work import LENGTH, make_data, make_model
from tests.bench.lab import NAME, ROOT, CommandFailed, Lab, run
from tests.bench.paper import circumstances, publish

FIGURES = Path(__file__).with_name("figures.json")
READY = "/opt/lab/venv/bin/python"
UNEQUAL = {"tower": 0.88, "laptop": 0.44, "oldbox": 0.22}
EQUAL = {"tower": 0.5, "laptop": 0.5, "oldbox": 0.5}
GLOBAL_BATCH = 64
TUTORIAL = Path(__file__).with_name("tutorial.py")
AT_ONCE = 3
"""Rows that the tutorial's script computes at once, 7 times a rank and step."""
SKIPPED = 2
"""Steps that pay for what later ones find ready, and are not counted."""


class Bench(Lab):
    """The machines, and the runs over them."""

    def __init__(self, folder: Path, steps: int) -> None:
        super().__init__(3, folder, READY)
        self._folder, self._steps = folder, steps
        self._model = make_model(folder / "llama")
        self._data = make_data(folder / "texts.jsonl", 4 * GLOBAL_BATCH)
        self._count = 0

    def prepare(self, shares: Mapping[str, float]) -> None:
        """Boot and provision the machines, give them the model, their speeds and their links."""
        self.up()
        self.play("playbooks/preflight.yml")
        self.play("playbooks/workspace.yml")
        from support.lab import bring  # knows the lab by HEARTH_LAB, which `main` sets

        for path in (self._model, self._data, TUTORIAL):
            bring(path, shares)
        for node, share in shares.items():
            self.do("link", node, "1gbit")
            self.do("cpu", node, str(share))

    def run_name(self, number: int) -> str:
        """Return the name of the run that is the `number`th of this bench, from 1."""
        return f"bench-{os.getpid()}-{number}"

    def train(self, nodes: Sequence[str], split: str) -> dict[str, Any]:
        """Train on some nodes, and return how fast it went and what was predicted."""
        self._count += 1
        name = self.run_name(self._count)
        train = {
            "model": str(self._model),
            "dataset": str(self._data),
            "run": name,
            "sequence_length": LENGTH,
            "held_out": 0,
            "global_batch": GLOBAL_BATCH,
            "max_steps": self._steps,
            "split": split,
            "threads": 1,
            "evaluate": False,
            "checkpoint_every": 10_000,
            "wandb": "off",
        }
        runs = self._folder / "runs"
        said = self.play(
            "train.yml",
            *("-e", json.dumps({"train": train}), "-e", f"nodes={','.join(nodes)}"),
            *("-e", f"plan_runs={runs}", "-e", "launch_ready_timeout=300"),
        )
        lines = map(json.loads, (runs / name / "metrics.jsonl").read_text().splitlines())
        steps = [line for line in lines if line["kind"] == "step"][SKIPPED:]
        predicted = re.search(r"together (\d+) tokens/s", said)
        return {
            "tokens_per_second": statistics.median(step["tokens_per_second"] for step in steps),
            "predicted_tokens_per_second": float(predicted[1]) if predicted else None,
            "steps": [
                {
                    name: step[name]
                    for name in (
                        "tokens_per_second",
                        "rows_by_rank",
                        "compute_seconds_by_rank",
                        "wait_seconds_by_rank",
                    )
                }
                for step in steps
            ],
        }

    def tutorial(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Train on these nodes with the script of the common tutorials; return how fast it went."""
        from hearth_lab import plan  # knows the lab by HEARTH_LAB, which `main` sets

        machines = {node.name: node for node in plan.nodes(len(nodes))}
        rows = GLOBAL_BATCH // len(nodes) // AT_ONCE * AT_ONCE
        work = f"{TUTORIAL} {self._model} {self._data} {rows} {AT_ONCE} {self._steps}"

        def rank(number: int) -> str:
            card = machines[nodes[number]].card
            command = (
                f"GLOO_SOCKET_IFNAME={card} OMP_NUM_THREADS=1 {READY} -m torch.distributed.run "
                f"--nnodes {len(nodes)} --nproc-per-node 1 --node-rank {number} "
                f"--master-addr {machines[nodes[0]].address} --master-port 29555 {work}"
            )
            reach = [str(ROOT / "scripts" / "lab"), "ssh", nodes[number]]
            return run([*reach, command], ROOT, self.environment)

        with ThreadPoolExecutor(len(nodes)) as pool:
            said, *_ = pool.map(rank, range(len(nodes)))
        seconds = json.loads(next(line for line in said.splitlines() if line.startswith("[")))
        tokens = rows * len(nodes) * LENGTH
        speeds = [tokens / each for each in seconds[SKIPPED:]]
        return {"tokens_per_second": statistics.median(speeds), "seconds": seconds}


def sitting(bench: Bench, shares: Mapping[str, float], repeat: int) -> dict[str, Any]:
    """Return the figures of each kind of run over machines with these shares, repeats in a list."""
    names = list(shares)
    found: dict[str, Any] = {"shares": dict(shares), "global_batch": GLOBAL_BATCH}
    found |= {"alone": {name: [] for name in names}, "equal": [], "by_speed": [], "tutorial": []}
    try:
        bench.prepare(shares)
        for turn in range(repeat):
            for name in names:
                found["alone"][name].append(bench.train([name], "auto"))
            for how, split in (("equal", "equal"), ("by_speed", "auto")):
                found[how].append(bench.train(names, split))
            found["tutorial"].append(bench.tutorial(names))
            print(f"bench: {turn + 1} of {repeat} turns over {shares}", flush=True)
    finally:
        bench.down()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.heterogeneous",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of a kind (default: 3)")
    parser.add_argument("--steps", type=int, default=8, help="steps of a run (default: 8)")
    parser.add_argument("--only", choices=["unequal", "equal"], help="one of the two sittings")
    parser.add_argument("--dry", action="store_true", help="print the table, write nothing")
    given = parser.parse_args(arguments)
    if os.geteuid() != 0:
        parser.error("the lab needs root")
    os.environ["HEARTH_LAB"] = NAME
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for tests/support
    kinds = {"unequal": UNEQUAL, "equal": EQUAL}
    sittings = []
    # Not below /tmp, which a machine has for itself.
    with tempfile.TemporaryDirectory(prefix="hearth-bench-", dir="/var/tmp") as folder:
        try:
            for name in [given.only] if given.only else kinds:
                (Path(folder) / name).mkdir()
                bench = Bench(Path(folder) / name, given.steps)
                sittings.append(sitting(bench, kinds[name], given.repeat))
        except CommandFailed as error:
            print(f"bench: a run failed: {error}", file=sys.stderr)
            return 1
    figures = circumstances() | {
        "model": f"A Llama of 8 layers with random weights, LoRA, rows of {LENGTH} tokens",
        "at_once": AT_ONCE,
        "skipped": SKIPPED,
        "sittings": sittings,
    }
    print(table(figures))
    if not given.dry:
        publish("heterogeneous", figures, FIGURES, table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
