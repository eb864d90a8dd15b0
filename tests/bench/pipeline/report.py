"""From raw figures to the table in tests/bench/README.md. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, median
from typing import Any, NamedTuple

from hearth.plan.makespan import makespan
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
    """Return the slowest stage's part of a step.

    It says nothing about the placement: the layers may be where they take longest.
    """
    return max(step["compute_seconds_by_rank"]) / seconds(step)


def without_waits(run: Run, shares: Sequence[float]) -> list[float]:
    """Return the seconds by rank that its stage of a step takes on a machine that never waits.

    `shares` of a core are by rank. By the clock a machine is faster that has waited
    (`tests.bench.cpu_use`).
    """
    return [own / share for own, share in zip(run["core_seconds_by_rank"], shares, strict=True)]


def by_the_clock(run: Run) -> list[float]:
    """Return the seconds by rank that its stage of a step took."""
    by_step = zip(*(step["compute_seconds_by_rank"] for step in run["steps"]), strict=True)
    return [mean(each) for each in by_step]


def of_the_best(run: Run, busy: Sequence[float]) -> float:
    """Return the speed of a run over the best possible one of its ranks with whole layers.

    There the layers and the head are where the slowest stage takes least time, and that stage
    computes all the time. `busy` are the seconds that each rank's stage takes in a step.
    """
    each = _by_layer(run, busy)
    best = min(
        max((layers + HEAD * (rank == head)) * each[rank] for rank, layers in enumerate(counts))
        for counts in _every_count(_layers(run), len(each))
        for head in range(len(each))
    )
    return best / mean(map(seconds, run["steps"]))


def of_the_sum(run: Run, busy: Sequence[float]) -> float:
    """Return the speed of a run over the sum of its ranks' speeds, as if layers could be cut."""
    speeds = sum(1 / each for each in _by_layer(run, busy))
    return (_layers(run) + HEAD) / speeds / mean(map(seconds, run["steps"]))


def _by_layer(run: Run, busy: Sequence[float]) -> list[float]:
    """Return the seconds of a step that a layer takes in each stage."""
    counts = [last - first for first, last in (stage["layers"] for stage in run["stages"])]
    work = [*counts[:-1], counts[-1] + HEAD]
    return [busy[stage["rank"]] / each for stage, each in zip(run["stages"], work, strict=True)]


def _layers(run: Run) -> int:
    return run["stages"][-1]["layers"][1]


def _every_count(layers: int, ranks: int) -> Iterator[tuple[int, ...]]:
    """Yield each way to give all `layers` to `ranks`; some may get none."""
    for counts in itertools.product(range(layers + 1), repeat=ranks - 1):
        if sum(counts) <= layers:
            yield (*counts, layers - sum(counts))


class Parts(NamedTuple):
    """Parts of a step: its slowest stage computes, or waits for the others, the links, or else.

    `bubble` and `links` are those of a simulated step (`hearth.plan.makespan`) whose passes and
    messages all take the mean of this one's. The rest is what varies, and the exchanged numbers.
    """

    busy: float
    bubble: float
    links: float
    rest: float


def parts(step: Mapping[str, Any], ranks: Sequence[int], count: int, link: float) -> Parts:
    """Return the parts of a step of `count` micro-batches through stages on these `ranks`.

    `link` are the seconds of a message.
    """
    stages = [step["compute_seconds_by_rank"][rank] / count for rank in ranks]
    nothing, each = ([time] * (len(ranks) - 1) for time in (0.0, link))
    busy = of_its_slowest_stage(step)
    alone, linked = (makespan(stages, way, way, count) / seconds(step) for way in (nothing, each))
    return Parts(busy, alone - busy, linked - alone, 1 - linked)


def table(figures: Mapping[str, Any]) -> str:
    staged, sharded = figures["pipeline"], figures["fsdp"]
    shares = ", ".join(f"{node} {share}" for node, share in figures["shares"].items())
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
        "| stage | layers | computes in a step | waits | without waits |",
        "|---|--:|--:|--:|--:|",
        *stages_of(staged, figures["shares"]),
        "",
        *aims(figures),
    ]
    return "\n".join(lines)


def stages_of(runs: Sequence[Run], shares: Mapping[str, float]) -> list[str]:
    """Return a line for each stage of the first run: its layers, and its seconds over all steps."""
    steps = [step for run in runs for step in run["steps"]]
    nodes, lines = list(shares), []
    for stage in runs[0]["stages"]:
        rank, (first, last) = stage["rank"], stage["layers"]
        own = median(step["compute_seconds_by_rank"][rank] for step in steps)
        rest = median(seconds(step) - step["compute_seconds_by_rank"][rank] for step in steps)
        alone = median(without_waits(run, [*shares.values()])[rank] for run in runs)
        lines.append(
            f"| {nodes[rank]} | {last - first} | {own:.2f} s | {rest:.2f} s | {alone:.2f} s |"
        )
    return lines


def aims(figures: Mapping[str, Any]) -> list[str]:
    """Return a line for each aim, and whether these figures meet it, and where the rest went."""
    staged, sharded, count = figures["pipeline"], figures["fsdp"], figures["micro_batches"]
    shares = [*figures["shares"].values()]
    pace = [(run, without_waits(run, shares)) for run in staged]
    part, of_sum = (median(itertools.starmap(way, pace)) for way in (of_the_best, of_the_sum))
    clock = median(of_the_best(run, by_the_clock(run)) for run in staged)
    link = figures["message_bytes"] * 8 / (figures["link_mbit"] * 1e6)
    each = [
        parts(step, [stage["rank"] for stage in run["stages"]], count, link)
        for run in staged
        for step in run["steps"]
    ]
    busy, bubble, links, rest = map(median, zip(*each, strict=True))
    times = median(speed(a) / speed(b) for a, b in zip(staged, sharded, strict=True))
    each_off = [run["predicted_tokens_per_second"] / speed(run) - 1 for run in staged]
    off = median(each_off)
    sent = median(run["sent_bytes_per_step"] for run in staged) / 1e6
    fetched = median(run["sent_bytes_per_step"] for run in sharded) / 1e6
    best = f"At least {OF_THE_BEST:.2f} of the ranks' speeds together, as far as whole layers allow"
    return [
        f"{aim(best, part >= OF_THE_BEST, f'{part:.3f}')} By the clock {clock:.3f}, since a "
        "machine of the lab is faster for some milliseconds after it has waited. If layers could "
        f"be cut: {of_sum:.3f}.",
        f"- The slowest stage computes in {busy:.3f} of a step, and waits for other stages in "
        f"{bubble:.3f} and for the links in {links:.3f}; uneven passes and the rest take "
        f"{rest:.3f}.",
        aim(f"At least {TIMES_FSDP:.0f} times fsdp", times >= TIMES_FSDP, f"{times:.1f}"),
        aim(
            f"Predicted within {PREDICTED_WITHIN:.0%} of what happens",
            abs(off) <= PREDICTED_WITHIN,
            f"{off:+.1%}; runs from {min(each_off):+.1%} to {max(each_off):+.1%}",
        ),
        f"- A rank sends {sent:.1f} MB a step in the pipeline"
        + (f" and {fetched:.1f} MB with fsdp." if fetched > sent else "."),
    ]
