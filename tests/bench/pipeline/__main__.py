"""Measure a model whose layers are divided over unequal machines, on the lab.

    sudo .venv/bin/python -m tests.bench.pipeline

boots three machines, under a name of its own, with shares of a core of 4:2:1 and links of 1 Gbit/s,
and trains on them with `parallel=pipeline` and with `parallel=fsdp` by turns. It takes about
five minutes a run of each on two otherwise idle cores.
"""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from support.llama import make_full_texts
from support.tiny_model import make_model

from tests.bench.cluster import UNEQUAL, Cluster, Trained
from tests.bench.command import Bench, turns
from tests.bench.cpu_use import sampled, seconds_of_a_step
from tests.bench.lab import CommandFailed
from tests.bench.pipeline.report import table

MICRO_BATCHES = 16
LENGTH = 64
"""Tokens of a row: few, since cards compute faster than these cores over the same network."""
LINK_MBIT = 1000
SKIPPED = 2
"""Steps that are not counted: they pay for what later ones find ready."""
SIZES = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 16,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "max_position_embeddings": LENGTH,
}


def settings_of(model: Path, data: Path) -> dict[str, Any]:
    """Return the settings of all runs: full rows, a row at once."""
    return {
        **{"model": str(model), "dataset": str(data), "held_out": 0, "eval_held_out": False},
        **{"sequence_length": LENGTH, "global_batch": MICRO_BATCHES, "micro_batch": 1},
    }


def figures_of(trained: Trained, skipped: int = SKIPPED) -> dict[str, Any]:
    """Return the counted steps of a run, where its layers were, and the predicted speed."""
    names = (
        *("tokens_per_second", "tokens", "compute_seconds_by_rank", "wait_seconds_by_rank"),
        "seconds_per_step",
    )
    start = next(line for line in trained.record if line["kind"] == "start")
    end = next(line for line in trained.record if line["kind"] == "end")
    steps = [line for line in trained.record if line["kind"] == "step"]
    if len(steps) <= skipped:
        raise CommandFailed(f"only {len(steps)} steps were taken")
    predicted = re.search(r"parallel=pipeline: (\d+) tokens/s", trained.said)
    return {
        "stages": start.get("stages"),
        "predicted_tokens_per_second": float(predicted[1]) if predicted else None,
        "sent_bytes_per_step": end["exchanged_bytes"] / len(steps),
        "steps": [{name: step[name] for name in names if name in step} for step in steps[skipped:]],
    }


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    model = make_model(folder / "llama", **SIZES)
    data = make_full_texts(folder / "texts.jsonl", 8 * MICRO_BATCHES, LENGTH)
    machines = Cluster(folder, UNEQUAL, f"{LINK_MBIT}mbit", [model, data])
    work = settings_of(model, data)
    found: dict[str, Any] = {"pipeline": [], "fsdp": []}
    with machines.up_and_ready():
        for _ in turns(given.repeat):
            machines.forget_speeds()  # a prediction is of the hour, on a computer that others use
            with sampled(machines.names) as samples:
                staged = machines.train(
                    machines.names, **work, parallel="pipeline", max_steps=given.steps + SKIPPED
                )
            computed = seconds_of_a_step(samples, staged.record, SKIPPED)
            own = [computed[node] for node in machines.names]
            found["pipeline"].append(figures_of(staged) | {"core_seconds_by_rank": own})
            sharded = machines.train(
                machines.names,
                **work,
                parallel="fsdp",
                split="equal",
                max_steps=given.fsdp_steps + 1,
            )
            found["fsdp"].append(figures_of(sharded, 1))
    return {
        "model": f"A Llama of 16 layers, 51 million weights in fp32, LoRA, rows of {LENGTH} tokens",
        "shares": machines.shares,
        "micro_batches": MICRO_BATCHES,
        "message_bytes": LENGTH * SIZES["hidden_size"] * 4,
        "link_mbit": LINK_MBIT,
        "skipped": SKIPPED,
        **found,
    }


if __name__ == "__main__":
    bench = Bench("pipeline", __doc__, table, lab=True)
    bench.option("--repeat", type=int, default=3, help="runs of a kind (default: 3)")
    bench.option("--steps", type=int, default=8, help="counted steps of a pipeline (default: 8)")
    bench.option("--fsdp-steps", type=int, default=2, help="counted steps of fsdp (default: 2)")
    bench.run(measure)
