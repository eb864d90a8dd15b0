"""Lose nodes in every way, and compare the weights with those of one process.

    sudo .venv/bin/python -m tests.bench.lost

trains a tiny model on three nodes of this computer: real supervisors and ranks, each node with a
network and a disk of its own. It plays every kind of fault on every node, each with every other at
once, and while a checkpoint is written or another node joins or leaves; then 200 random ones in a
row on one run. What each run has learned must be what one process learns from the same global
batches, with every step once on record, and no fault may make it hang. It takes about two hours on
two cores; `--cases 10 --in-a-row 10` takes some minutes. It consists of several runs: `--runs 1 2`
plays some of them, and their figures join those of the others.
"""

from __future__ import annotations

import json
import random
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.assembly import TINY_WORK
from support.losses import Case
from support.tiny_model import make_dataset, make_model

from tests.bench.command import Bench, at_least
from tests.bench.lab import CommandFailed
from tests.bench.lost.cases import in_a_row, matrix, sittings
from tests.bench.lost.report import WITHIN, table
from tests.bench.lost.sitting import NAMES, PACE, SILENCE, Sitting
from tests.bench.paper import circumstances

RAW = Path(__file__).with_name("figures.json")
"""The figures so far."""

_MOST = 25
"""Cases of one run of the matrix."""


def sit(
    folder: Path,
    work: dict[str, Any],
    precision: str,
    cases: Sequence[Case],
    chance: random.Random,
    row: bool,
) -> dict[str, Any]:
    """Play cases on one run, and return what each cost and what the run has learned."""
    folder.mkdir()
    sitting = Sitting(folder, work | {"precision": precision}, chance)
    played = []
    try:
        for number, case in enumerate(cases, 1):
            played.append(sitting.play(case))
            seconds = played[-1]["seconds_until_together"]
            print(f"bench: {number} of {len(cases)}: {case}: {seconds:.1f} s", flush=True)
        found = sitting.compare()
    finally:
        sitting.close()
    print(f"bench: {found}", flush=True)
    if found["apart"] > WITHIN[precision]:
        raise CommandFailed(f"{precision}: not what one process learns: {found}")
    return {"precision": precision, "in_a_row": row, "cases": played, **found}


def earlier(plan: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the figures of the runs that were played before by the same plan, by number."""
    try:
        kept = json.loads(RAW.read_text())
    except FileNotFoundError:
        return {}
    if any(kept[name] != value for name, value in plan.items()):
        return {}
    return {sitting["number"]: sitting for sitting in kept["sittings"]}


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    chance = random.Random(given.seed)
    cases = matrix(NAMES, chance)[: given.cases]
    row = in_a_row(given.in_a_row, NAMES, chance)
    planned = [("fp64", each, False) for each in sittings(cases, _MOST)]
    planned += [("fp32", row, True)] if row else []
    plan = {"seed": given.seed, "cases": len(cases), "in_a_row": given.in_a_row}
    plan |= {"silence": SILENCE, "load": PACE.load, "runs": len(planned)}
    if strangers := [each for each in given.runs or () if not 0 < each <= len(planned)]:
        raise CommandFailed(f"--runs {strangers[0]}: there are runs 1 to {len(planned)}")
    model, data = make_model(folder / "tiny"), make_dataset(folder / "words.jsonl", 400)
    work = TINY_WORK | {"model": str(model), "dataset": str(data)}
    found = earlier(plan)
    for number in given.runs or range(1, len(planned) + 1):
        precision, each, in_row = planned[number - 1]
        own = random.Random(f"{given.seed} {number}")
        played = sit(folder / f"run-{number}", work, precision, each, own, in_row)
        found[number] = {"number": number, "hearth": circumstances()["hearth"], **played}
    return plan | {"sittings": [found[number] for number in sorted(found)]}


if __name__ == "__main__":
    bench = Bench("lost", __doc__, table, lab=True)
    none = at_least(0, "0 plays none")
    bench.option("--cases", type=none, help="cases of the matrix to play (default: all)")
    bench.option("--in-a-row", type=none, default=200, help="faults on one run (default: 200)")
    bench.option("--seed", type=int, default=0, help="of everything random (default: 0)")
    bench.option("--runs", type=int, nargs="+", help="numbers of the runs to play (default: all)")
    bench.run(measure)
