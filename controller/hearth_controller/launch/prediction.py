"""Choose the nodes of a run from what they measured, and describe the expected speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hearth.base.errors import ConfigError
from hearth.base.text import link_speed
from hearth.config import run_of
from hearth.plan.prediction import (
    ADVISED,
    Contender,
    Prediction,
    Traffic,
    advised_sync_every,
    choose,
    fastest_alone,
    fetch_seconds,
    network_cost,
    predict,
    stop_grace,
    turns,
)
from hearth.plan.speed import Speed
from hearth.plan.split import Division, better_global_batch, by_speed, in_shares
from hearth_controller.launch.resume import add_resume_point


@dataclass(frozen=True)
class NodeFacts:
    """The reports of one node before a run: data, model and measured speed; links; its device."""

    prepared: Mapping[str, Any] = field(default_factory=dict)
    links: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""


def choose_nodes(run: Mapping[str, Any], nodes: Mapping[str, NodeFacts]) -> dict[str, Any]:
    """Choose the nodes that train `run`, out of `nodes` in order of rank.

    Returns `findings`; if it is empty, also `names`, `stop_grace` and, for a person, `say`.
    """
    everyone = run["nodes"] in (["all"], ["auto"])
    named = [name for name in nodes if everyone or name in run["nodes"]]
    try:
        if run["parallel"] == "fsdp":
            answer = _sharded(run, {name: nodes[name] for name in named})
        elif run["parallel"] == "pipeline":
            answer = _divided(run, nodes, named)
        elif measured := _measured(run, nodes, named):
            answer = _predicted(
                run, nodes, measured, [name for name in named if name not in measured]
            )
        else:
            answer = {"names": named, "stop_grace": stop_grace(), "say": _devices(nodes, named)}
    except ConfigError as error:
        return {"findings": error.findings}
    answer = {"findings": []} | answer
    if not run["resumes"]:
        return answer
    reached = {name: node.prepared["checkpoint"] for name, node in nodes.items()}
    return add_resume_point(answer, run, reached)


def _devices(nodes: Mapping[str, NodeFacts], names: Sequence[str]) -> str:
    """Return a line per node: what it computes on."""
    wide = max(map(len, names))
    return "\n".join(f"  {name:<{wide}}  {nodes[name].device}" for name in names)


def _measured(
    run: Mapping[str, Any], nodes: Mapping[str, NodeFacts], named: Sequence[str]
) -> dict[str, NodeFacts]:
    """Return the nodes with known speeds; none if those of the `named` ones would not do.

    A node that is away is not measured: it has the speed of an earlier run, or none.
    """
    measured = {name: node for name, node in nodes.items() if node.prepared.get("ranks")}
    if len(measured) == len(nodes):
        return measured
    return measured if any(name in measured for name in named) and run["by_speed"] else {}


def _predicted(
    run: Mapping[str, Any],
    nodes: Mapping[str, NodeFacts],
    measured: Mapping[str, NodeFacts],
    unmeasured: Sequence[str],
) -> dict[str, Any]:
    """Choose the nodes of a run whose ranks all hold the whole model.

    Those that are `measured` make a choice among themselves; `unmeasured` ones take part.
    """
    settings, rows = run["settings"], run["global_batch"]
    most = rows if settings["micro_batch"] == "auto" else settings["micro_batch"]
    contenders = contenders_of(measured, most)
    first = next(iter(measured.values()))
    rank = first.prepared["ranks"][0]
    gradients = rank["exchange_bytes"]
    traffic = Traffic.of(
        gradients,
        run["sync_every"],
        settings["compress"] != "none",
        settings["optimizer"] == "muon",
    )
    division = by_speed if run["by_speed"] else in_shares(run["split"] or None)
    chosen = select(run["nodes"], contenders, rows, traffic, division)
    devices = {name: node.device for name, node in nodes.items()}
    lines = describe_prediction(
        contenders, chosen, rows, rank["row_tokens"], traffic, division, devices, unmeasured
    )
    evaluates = settings["eval_held_out"] or settings["eval_every"]
    held_out_rows = first.prepared["held_out_rows"] if evaluates else 0
    return {
        "names": [name for name in nodes if name in chosen.nodes or name in unmeasured],
        "stop_grace": stop_grace(
            chosen.step_seconds * traffic.every,  # a run stops only where its nodes exchange
            measured=True,
            learned=gradients,  # each gradient is as large as its weight
            judging=held_out_rows / chosen.rows_per_second,
        ),
        "say": "\n".join(f"  {line}" for line in lines),
    }


def contenders_of(nodes: Mapping[str, NodeFacts], most: int) -> list[Contender]:
    """Return the measured speeds and links of each node, for micro-batches of up to `most` rows."""
    return [
        Contender(
            name,
            tuple(
                Speed(
                    tuple(rank["speed"]["sizes"]), tuple(rank["speed"]["seconds"])
                ).no_larger_than(most)
                for rank in node.prepared["ranks"]
            ),
            node.links.get("mbit", {}),
            node.links.get("milliseconds", {}),
        )
        for name, node in nodes.items()
    ]


def select(
    wanted: Sequence[str],
    nodes: Sequence[Contender],
    rows: int,
    traffic: Traffic,
    division: Division,
) -> Prediction:
    """Predict the run over the requested nodes: by name, `all`, or `auto` for the fastest set."""
    if list(wanted) == ["auto"] and division is by_speed:
        return choose(nodes, rows, traffic)
    if list(wanted) in (["all"], ["auto"]):
        return predict(nodes, rows, traffic, division)
    return predict([node for node in nodes if node.name in wanted], rows, traffic, division)


def describe_prediction(
    nodes: Sequence[Contender],
    chosen: Prediction,
    rows: int,
    row_tokens: int,
    traffic: Traffic,
    division: Division,
    devices: Mapping[str, str],
    unmeasured: Sequence[str] = (),
) -> list[str]:
    """Describe device and speed of each node, and of the chosen ones together, with advice."""
    alone = fastest_alone(nodes, rows)
    wide, most = (max(map(len, words)) for words in (devices, devices.values()))
    lines = []
    for node in nodes:
        link = f"   link {link_speed(max(node.mbit.values()))}" if node.mbit else ""
        tokens = node.rows_per_second * row_tokens
        device = devices[node.name]
        lines.append(
            f"{node.name:<{wide}}  {device:<{most}}  up to {tokens:.0f} tokens/s alone{link}"
        )
    lines += [
        f"{name:<{wide}}  {devices[name]:<{most}}  its speed is not known yet: it takes part"
        for name in unmeasured
    ]
    gain = chosen.rows_per_second / alone.rows_per_second
    together = f"{chosen.rows_per_second * row_tokens:.0f} tokens/s"
    if len(chosen.nodes) > 1:
        lines.append(
            f"together {together}: {gain:.2f} times {alone.nodes[0]} alone; a step takes "
            f"{chosen.step_seconds:.2f} s, {chosen.exchange_seconds:.2f} s of it to exchange "
            f"{traffic.size / 1e6:.1f} MB"
            + (f" every {traffic.every} steps" if traffic.every > 1 else "")
        )
    everyone = predict(nodes, rows, traffic, division)
    left_out = [node.name for node in nodes if node.name not in chosen.nodes]
    if left_out and chosen.rows_per_second > everyone.rows_per_second:
        lines.append(
            f"LEFT OUT: {', '.join(left_out)}. With all nodes a step would take "
            f"{everyone.step_seconds:.2f} s, without {chosen.step_seconds:.2f} s "
            "(-e nodes=all takes them all the same)"
        )
    seldom = advised_sync_every(nodes, rows, traffic, division)
    if seldom and seldom.rows_per_second > chosen.rows_per_second:
        lines.append(
            f"slow links: sync_every={ADVISED} with all nodes would come to "
            f"{seldom.rows_per_second * row_tokens:.0f} tokens/s, with an approximate result"
        )
    ranks = [rank for node in nodes if node.name in chosen.nodes for rank in node.ranks]
    better = better_global_batch(rows, ranks, chosen.exchange_seconds)
    # With sync_every, the steps of a round make up for what one of them cannot share evenly.
    if better and division is by_speed and traffic.every == 1:
        lines.append(
            f"global_batch={better} would keep all of them busier than {rows}: rows cannot be cut"
        )
    return lines


def _divided(
    run: Mapping[str, Any], nodes: Mapping[str, NodeFacts], names: Sequence[str]
) -> dict[str, Any]:
    """Return the choice for a run whose layers are placed on `names`: all of them take part.

    Raises `ConfigError` if there is only one rank.
    """
    if sum(nodes[name].prepared["nproc"] for name in names) == 1:
        raise ConfigError(
            f"parallel: pipeline needs two ranks or more, and {names[0]} has one; take "
            "parallel=ddp, or more nodes"
        )
    planned = run_of(run["file"], "the run").pipeline
    seconds = planned.step_seconds if planned else 0.0
    rows_per_second = run["global_batch"] / seconds if seconds else 0.0
    evaluates = run["settings"]["eval_held_out"] or run["settings"]["eval_every"]
    held_out_rows = nodes[names[0]].prepared["held_out_rows"] if evaluates else 0
    return {
        "names": list(names),
        "stop_grace": stop_grace(
            seconds,
            measured=bool(planned),
            learned=run.get("learned", 0),
            judging=held_out_rows / rows_per_second if rows_per_second else 0.0,
            gathering=run.get("gathering", 0.0),
        ),
        # The stages have been described when they were placed.
        "say": "" if planned else _devices(nodes, names),
    }


def _sharded(run: Mapping[str, Any], nodes: Mapping[str, NodeFacts]) -> dict[str, Any]:
    """Describe a run whose ranks each hold a part of the model (`parallel: fsdp`).

    It takes all of `nodes`: without one of them, a part of the model would be missing.
    """
    names = list(nodes)
    ranks = sum(node.prepared["nproc"] for node in nodes.values())
    if ranks == 1:
        raise ConfigError(
            f"parallel: fsdp needs two ranks or more, and {names[0]} has one; take parallel=ddp, "
            "or more nodes"
        )
    if len(names) == 1:
        return {"names": names, "stop_grace": stop_grace(), "say": _devices(nodes, names)}
    links = [node.links.get("mbit", {}) for node in nodes.values()]
    slowest = min(
        (mbit for link in links for peer, mbit in link.items() if peer in nodes), default=None
    )
    weights = max(node.prepared["weight_bytes"] for node in nodes.values())
    # The time to compute was not measured; a step takes at least the time to fetch.
    step_seconds = _fetches(run, ranks) * fetch_seconds(weights, ranks, slowest)
    return {
        "names": names,
        "stop_grace": stop_grace(step_seconds),
        "say": f"{_devices(nodes, names)}\n  {network_cost(weights, ranks, slowest)}",
    }


def _fetches(run: Mapping[str, Any], ranks: int) -> int:
    """Return the number of weight fetches per step of a sharded run; in a replay, the most."""
    rows, micro_batch = run["global_batch"], run["settings"]["micro_batch"]
    if run["settings"]["replay"]:
        return rows
    # `auto` may come to one row: a rank cannot measure its memory without the other ranks.
    return turns(rows, 1 if micro_batch == "auto" else micro_batch, run["split"] or None, ranks)
