"""Measure what a first run with all defaults learns.

    python -m tests.bench.defaults
    python -m tests.bench.defaults --steps      # only the steps of each preset, in a second

trains SmolLM2-135M with the default settings (not those of its preset) on the shipped examples and
on chats of small talk (a Python package of 0.3 MB, BSD licence): once as `auto` resolves the steps,
then with one to five passes over the data and otherwise the same. It takes hours on two cores, one
run after the other; with `--keep FOLDER` an interrupted bench goes on. `--every 4` takes only every
fourth of the 900 conversations.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.lengths import SHIPPED, chats, of_preset, settled, short_chats

from hearth.config import Settings, preset_names, read_run
from hearth.plan.steps import rate_at
from tests.bench.command import Bench
from tests.bench.defaults.report import table
from tests.bench.lab import ROOT, run
from tests.bench.packing.data import make_corpus

MODEL = "smollm2-135m"
EPOCHS = (1, 2, 3, 4, 5)
DEFAULTS = ("sequence_length", "learning_rate", "lora_rank", "lora_alpha")
"""Settings of the preset that are set back to their defaults."""

FORM = ("sequence_length", "packing", "global_batch")
DATA = {
    "shipped": SHIPPED,
    "100 chats": short_chats(100),
    "1,000 chats": short_chats(1000),
    "20,000 chats": short_chats(20_000),
}


def steps_of_presets() -> list[dict[str, Any]]:
    """Return the steps of each preset on each data set, computed without a model."""
    found = []
    for preset in preset_names():
        for data, lengths in DATA.items():
            settings, steps, rows = settled(of_preset(preset), chats(lengths))
            rates = [rate_at(step, steps, settings) for step in range(steps)]
            found.append(
                {
                    **{"preset": preset, "data": data, "steps": steps, "rows": rows},
                    **{name: getattr(settings, name) for name in (*FORM, "epochs")},
                    "tokens_a_step": sum(lengths) * settings.global_batch / rows,
                    "warmup_steps": settings.warmup_steps,
                    **{"first_rate": rates[0], "peak_rate": max(rates)},
                    "last_rate": rates[-1],
                    "learning_rate": settings.learning_rate,
                }
            )
    return found


def trained(
    folder: Path, name: str, dataset: str | Path, threads: int, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Train the run `name` in `folder`, unless it is there, and return its figures."""
    place = folder / "runs" / name
    if not _has_ended(place):
        print(f"bench: {name}", flush=True)
        defaults = {each: Settings.model_fields[each].default for each in DEFAULTS}
        # Bits and memory do not depend on what a speed measurement would choose.
        same = {"threads": threads, "wandb": "off", "micro_batch": 8, "split": "equal"}
        own = {"model": MODEL, "dataset": dataset, "run-name": name}
        words = [_option(*each) for each in (own | defaults | same | dict(given)).items()]
        script = ROOT / "training" / "train_distributed.py"
        run([sys.executable, str(script), *words], folder, dict(os.environ))
    settings = read_run(place / "run.yml").settings
    records = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    evaluated = {each["when"]: each for each in records if each["kind"] == "evaluate"}
    steps = [record for record in records if record["kind"] == "step"]
    return {
        "epochs": settings.epochs,
        "threads": settings.threads,
        "steps": steps[-1]["steps"],
        "warmup_steps": settings.warmup_steps,
        **{name: getattr(settings, name) for name in FORM},
        "tokens_a_step": sum(step["tokens"] for step in steps) / len(steps),
        "before": evaluated["before"]["perplexity"],
        "after": evaluated["after"]["perplexity"],
        "held_out_tokens": evaluated["after"]["tokens"],
    }


def _option(name: str, value: Any) -> str:
    """Return a setting as an option of the command line."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{'' if value else 'no-'}{option}"
    return f"--{option}={value}"


def _has_ended(place: Path) -> bool:
    """Return whether the run in this folder has finished."""
    metrics = place / "metrics.jsonl"
    return metrics.exists() and '"kind": "end"' in metrics.read_text()


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    computed = steps_of_presets()
    if given.steps:
        return {"steps": computed}
    folder = given.keep.resolve() if given.keep else folder
    folder.mkdir(parents=True, exist_ok=True)
    # Some of its conversations are repeated dozens of times.
    corpus = list(dict.fromkeys(make_corpus(folder).read_text().splitlines(keepends=True)))
    few = folder / "chats.jsonl"
    few.write_text("".join(corpus[:: given.every]))
    sets: dict[str, Any] = {}
    for data, dataset in (("shipped", "homelab-qa"), ("chats", few)):
        auto = trained(folder, f"{data}-auto", dataset, given.threads, {})
        form = {name: auto[name] for name in FORM}
        sets[data] = {"auto": auto, "others": []}
        for epochs in given.epochs:
            if epochs != auto["epochs"]:
                more = form | {"epochs": epochs}
                found = trained(folder, f"{data}-{epochs}", dataset, given.threads, more)
                sets[data]["others"].append(found)
    return {"model": MODEL, "every": given.every, "steps": computed, "sets": sets}


if __name__ == "__main__":
    bench = Bench("defaults", __doc__, table)
    bench.option("--steps", action="store_true", help="print the steps of each preset alone")
    bench.option("--threads", type=int, default=2, help="threads of a run (default: 2)")
    bench.option("--epochs", type=int, nargs="+", default=EPOCHS, help="passes to compare with")
    bench.option("--every", type=int, default=1, help="every how many chats (default: 1)")
    bench.option("--keep", type=Path, metavar="FOLDER", help="keep the runs in FOLDER")
    bench.run(measure)
