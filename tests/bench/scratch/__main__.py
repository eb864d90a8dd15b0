"""Train a GPT of 2 layers from random weights on real text, over unequal ranks and over one.

    python -m tests.bench.scratch

writes token shards of the text that this Python environment has, with a tokenizer trained on it,
and trains the same steps in one process and in three ranks that take 4, 2 and 1 of 7 parts; once
more stopped half-way and resumed; and both in float32. It takes some ten minutes on two cores.
"""

from __future__ import annotations

from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.ranks import arguments_of, figures, furthest, learned, metrics, python, train_forked
from support.waiting import until

from tests.bench.command import Bench, at_least
from tests.bench.lab import CommandFailed
from tests.bench.scratch.corpus import POSITIONS, make_corpus, make_gpt
from tests.bench.scratch.report import table

ALONE = (1, ("--split", "equal", "--micro-batch", 14))
UNEQUAL = (3, ("--split", "4:2:1", "--micro-batch", 2))
SETTINGS = {
    "dataset": "shards/*_train_*.bin",
    "validation": "shards/*_val_*.bin",
    "scratch": True,
    "lora": False,
    "dropout": 0,
    "sequence_length": POSITIONS,
    "global_batch": 14,
    "optimizer": "adamw",
    "learning_rate": 2e-3,
    "warmup_steps": 10,
    "weight_decay": 0.1,
    "beta2": 0.95,
    "validation_tokens": 64 * POSITIONS,
    "wandb": "off",
}
_SECONDS = 1800


def trained(folder: Path, run: str, ranks: int, *arguments: object, stop: int = 0) -> None:
    """Train; with `stop`, stop after these steps and resume."""
    record = folder / "runs" / run

    def ask() -> None:
        until(lambda: len(metrics(record, "step")) >= stop, _SECONDS)
        (record / "stop").touch()

    with ThreadPoolExecutor(1) as pool:
        asked = [pool.submit(ask)] if stop else []
        _succeed(folder, ranks, "--run-name", run, *arguments)
        for each in asked:
            each.result()
            if figures(record, "end", "state") != ["stopped"]:
                raise CommandFailed(f"{run}: it had finished before it was stopped")
            _succeed(folder, ranks, "--resume", run)
    print(f"bench: {run}: done", flush=True)


def _succeed(folder: Path, ranks: int, *arguments: object) -> None:
    done = train_forked(folder, ranks, *arguments, timeout=_SECONDS)
    if done.returncode:
        raise CommandFailed(done.stderr[-2000:])


def described(folder: Path, run: str, reference: str) -> dict[str, Any]:
    """Return losses and perplexities of a run, and how far its weights are from the reference's."""
    record = folder / "runs" / run
    return {
        "run": run,
        "losses": figures(record, "step", "loss"),
        "perplexity": figures(record, "evaluate", "perplexity"),
        "furthest": furthest(learned(folder, run), learned(folder, reference)),
        "samples": [[each["question"], each["answer"]] for each in metrics(record, "sample")],
    }


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    letters = make_corpus(folder / "corpus.jsonl")
    model = make_gpt(folder / "gpt", folder / "corpus.jsonl")
    words = ("-m", "hearth.data.shards", "corpus.jsonl", "--tokenizer", model)
    done = python(folder, *words, "--out", "shards", "--held-out", 0.05)
    if done.returncode:
        raise CommandFailed(f"the shards were not written: {done.stderr[-2000:]}")
    common = arguments_of({"model": str(model), "max_steps": given.steps, **SETTINGS})
    half, runs = given.steps // 2, []
    for precision in ("fp64", "fp32"):
        for name, (ranks, how) in (("one", ALONE), ("three", UNEQUAL)):
            trained(folder, f"{name}-{precision}", ranks, *common, *how, "--precision", precision)
            runs.append(described(folder, f"{name}-{precision}", f"one-{precision}"))
    ranks, how = UNEQUAL
    trained(folder, "resumed-fp64", ranks, *common, *how, "--precision", "fp64", stop=half)
    runs.append(described(folder, "resumed-fp64", "three-fp64"))
    start = metrics(folder / "runs" / "one-fp64", "start")[0]
    facts = {name: start[name] for name in ("rows", "tokens_per_epoch", "trainable_parameters")}
    batch = {name: SETTINGS[name] for name in ("global_batch", "sequence_length")}
    return {"letters": letters, "stopped": half, **facts, **batch, "runs": runs}


if __name__ == "__main__":
    bench = Bench("scratch", __doc__, table)
    steps = at_least(20, "a run is stopped half-way")
    bench.option("--steps", type=steps, default=200, help="steps of a run (default: 200)")
    bench.run(measure)
