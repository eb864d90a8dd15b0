"""From raw figures to the table in docs/measurements.md. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from tests.bench.paper import aim, measured, spread

OF_THE_BEST = 0.90
HEAD = 0.04
"""Work of the head in layers, by the weights that a token is multiplied with. The embeddings are
looked up, which costs next to nothing."""
TIMES_FSDP = 5.0
PREDICTED_WITHIN = 0.10

Run = Mapping[str, Any]


def seconds(step: Mapping[str, Any]) -> float:
    """Return the seconds of a step."""
    return step["tokens"] / step["tokens_per_second"]


def speed(run: Run) -> float:
    """Return the tokens/s over the counted steps of a run together."""
    return sum(step["tokens"] for step in run["steps"]) / sum(map(seconds, run["steps"]))


def of_its_slowest_stage(step: Mapping[str, Any]) -> float:
    """Return the part of a step in which the slowest stage computed.

    It says nothing about the placement: the layers may be where they take longest.
    """
    return max(step["compute_seconds_by_rank"]) / seconds(step)


def seconds_by_layer(step: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the seconds of a step that a layer took in each of the `stages`."""
    counts = [last - first for first, last in (stage["layers"] for stage in stages)]
    work = [*counts[:-1], counts[-1] + HEAD]
    return [
        step["compute_seconds_by_rank"][stage["rank"]] / each
        for stage, each in zip(stages, work, strict=True)
    ]


def of_the_best(step: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> float:
    """Return the speed of a step over the best possible one of these ranks with whole layers.

    There the layers and the head are where the slowest stage takes least time, at the speeds that
    the ranks had in this step, and that stage computes all the time.
    """
    each = seconds_by_layer(step, stages)
    best = min(
        max((layers + HEAD * (rank == head)) * each[rank] for rank, layers in enumerate(counts))
        for counts in _every_count(stages[-1]["layers"][1], len(stages))
        for head in range(len(stages))
    )
    return best / seconds(step)


def of_the_sum(step: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> float:
    """Return the speed of a step over the sum of the ranks' speeds, as if layers could be cut."""
    work = stages[-1]["layers"][1] + HEAD
    speeds = sum(1 / each for each in seconds_by_layer(step, stages))
    return work / speeds / seconds(step)


def _every_count(layers: int, ranks: int) -> Iterator[tuple[int, ...]]:
    """Yield each way to give all `layers` to `ranks`; some may get none."""
    for counts in itertools.product(range(layers + 1), repeat=ranks - 1):
        if sum(counts) <= layers:
            yield (*counts, layers - sum(counts))


def filling(step: Mapping[str, Any], ranks: Sequence[int], micro_batches: int) -> float:
    """Return the part of a step that fills and drains the pipeline, of stages on these `ranks`.

    The slowest stage waits while those before it compute the first micro-batch forward, and the
    last one backward.
    """
    times = [step["compute_seconds_by_rank"][rank] for rank in ranks]
    return sum(times[: times.index(max(times))]) / micro_batches / seconds(step)


def table(figures: Mapping[str, Any]) -> str:
    staged, sharded = figures["pipeline"], figures["fsdp"]
    shares = ", ".join(f"{node} {share}" for node, share in figures["shares"].items())
    nodes = list(figures["shares"])
    lines = [
        "Emulated: machines of the lab with a share of a core each, CPU, gloo, links of 1 Gbit/s. "
        f"{figures['model']}; {figures['micro_batches']} micro-batches of one row in a step. "
        f"Shares of a core: {shares}. {measured(figures)} Tokens/s of the steps after the first "
        "ones; medians of n runs, with the least and the most.",
        "",
        "| | n | tokens/s | |",
        "|---|--:|--:|---|",
    ]
    for words, runs in (("layers divided (pipeline)", staged), ("weights sharded (fsdp)", sharded)):
        speeds = [speed(run) for run in runs]
        lines.append(f"| {words} | {len(runs)} | {median(speeds):.1f} | {spread(speeds, 1)} |")
    lines += [
        "",
        "| stage | layers | computes in a step | waits |",
        "|---|--:|--:|--:|",
        *stages_of(staged, nodes),
        "",
        *aims(figures),
    ]
    return "\n".join(lines)


def stages_of(runs: Sequence[Run], nodes: Sequence[str]) -> list[str]:
    """Return a line for each stage of the first run: its layers, and its seconds over all steps."""
    steps = [step for run in runs for step in run["steps"]]
    lines = []
    for stage in runs[0]["stages"]:
        rank, (first, last) = stage["rank"], stage["layers"]
        own = median(step["compute_seconds_by_rank"][rank] for step in steps)
        rest = median(seconds(step) - step["compute_seconds_by_rank"][rank] for step in steps)
        lines.append(f"| {nodes[rank]} | {last - first} | {own:.2f} s | {rest:.2f} s |")
    return lines


def aims(figures: Mapping[str, Any]) -> list[str]:
    """Return a line for each aim, and whether these figures meet it, and where the rest went."""
    staged, sharded, count = figures["pipeline"], figures["fsdp"], figures["micro_batches"]
    steps = [(step, run["stages"]) for run in staged for step in run["steps"]]
    busy = median(of_its_slowest_stage(step) for step, _ in steps)
    part, of_sum = (median(itertools.starmap(way, steps)) for way in (of_the_best, of_the_sum))
    lost = median(
        filling(step, [stage["rank"] for stage in run["stages"]], count)
        for run in staged
        for step in run["steps"]
    )
    times = median(speed(a) / speed(b) for a, b in zip(staged, sharded, strict=True))
    off = median(run["predicted_tokens_per_second"] / speed(run) - 1 for run in staged)
    sent = median(run["sent_bytes_per_step"] for run in staged) / 1e6
    fetched = median(run["sent_bytes_per_step"] for run in sharded) / 1e6
    best = f"At least {OF_THE_BEST:.2f} of the ranks' speeds together, as far as whole layers allow"
    rest = max(0.0, 1 - busy - lost)
    return [
        f"{aim(best, part >= OF_THE_BEST, f'{part:.3f}')} The best step is that of the layer "
        "counts whose slowest stage takes least, at the speeds of the ranks in the measured step, "
        "and that stage never waits. If layers could be cut, too, it would be "
        f"{of_sum:.3f} of the best.",
        f"- Of the pace of the slowest stage, with the layers that were placed, {busy:.3f} was "
        f"reached. Filling and draining the pipeline takes {lost:.3f} of a step; the links and "
        f"everything else take {rest:.3f}.",
        aim(f"At least {TIMES_FSDP:.0f} times fsdp", times >= TIMES_FSDP, f"{times:.1f}"),
        aim(
            f"Predicted within {PREDICTED_WITHIN:.0%} of what happens",
            abs(off) <= PREDICTED_WITHIN,
            f"{off:+.1%}",
        ),
        f"- A rank sends {sent:.1f} MB a step in the pipeline"
        + (f" and {fetched:.1f} MB with fsdp." if fetched > sent else "."),
    ]
