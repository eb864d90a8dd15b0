"""Show what DPO, ORPO and KTO teach a small model, over two unequal ranks.

    python -m tests.bench.preferences

teaches SmolLM2-135M to answer questions on Python's functions, and then to prefer short answers. It
takes about twenty minutes on two idle cores.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from support.repository import ROOT

from hearth.base.places import user_cache
from tests.bench.command import Bench
from tests.bench.lab import CommandFailed, run
from tests.bench.preferences.data import write_sets
from tests.bench.preferences.report import table

MODEL = "smollm2-135m"
_SCRIPT = ROOT / "training" / "train_distributed.py"
_LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1")


def train(folder: Path, name: str, data: Path, steps: int, *more: str) -> list[dict[str, Any]]:
    """Train a run over two ranks; return the lines of its record."""
    command = [
        *(sys.executable, *_LAUNCHER, "--nproc-per-node=2", str(_SCRIPT), "--model", MODEL),
        *("--dataset", str(data), "--run-name", name, "--max-steps", str(steps)),
        *("--sequence-length", "256", "--split", "2:1", "--wandb", "off", "--threads", "1", *more),
    ]
    own = {"HEARTH_MODELS": str(user_cache(os.environ) / "models"), "XDG_CACHE_HOME": str(folder)}
    run(command, folder, {**os.environ, **own, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"})
    record = folder / "runs" / name / "metrics.jsonl"
    return [json.loads(line) for line in record.read_text().splitlines()]


def summary(record: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of a run before and after its steps."""
    found: dict[str, Any] = {}
    for each in record:
        if each["kind"] == "evaluate":
            known = {"accuracy": each.get("reward_accuracy"), "perplexity": each["perplexity"]}
            found[each["when"]] = known | {"chosen_log_prob": each.get("chosen_log_prob")}
        elif each["kind"] == "sample":
            found[each["when"]]["answer"] = each["answer"]
    steps = [each for each in record if each["kind"] == "step"]
    if not steps:
        raise CommandFailed("a run took no step")
    tokens = sum(each["tokens"] / each["tokens_per_second"] for each in steps)
    rate = max(each["learning_rate"] for each in steps)
    return found | {"steps": steps[-1]["step"], "seconds": round(tokens, 1), "rate": rate}


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    files = write_sets(folder)
    taught = summary(train(folder, "taught", files["answers"], given.taught))
    runs = {}
    for name in ("dpo", "kto", "orpo"):
        data = files["judged" if name == "kto" else "pairs"]
        onto = () if name == "orpo" else ("--onto", "taught")
        runs[name] = summary(train(folder, name, data, given.steps, "--objective", name, *onto))
        print(f"bench: {name}: {runs[name]}", flush=True)
    pairs = len(files["pairs"].read_text().splitlines())
    return {"model": MODEL, "pairs": pairs, "taught": taught, "runs": runs}


if __name__ == "__main__":
    bench = Bench("preferences", __doc__, table)
    bench.option("--taught", type=int, default=30, help="steps on answers (default: 30)")
    bench.option("--steps", type=int, default=50, help="steps of each objective (default: 50)")
    bench.run(measure)
