"""Choose the nodes of a run by their measured speeds and checkpoints; describe the speed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hearth.base.errors import ConfigError
from hearth.base.text import link_speed
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
from hearth_controller.launch.answers import LinkSpeeds, Preparation
from hearth_controller.launch.request import LaunchRequest


@dataclass(frozen=True)
class NodeFacts:
    """The reports of one node before a run: data, model and measured speed; links; its device."""

    prepared: Preparation = field(default_factory=Preparation)
    links: LinkSpeeds = field(default_factory=LinkSpeeds)
    device: str = ""


@dataclass(frozen=True)
class ChosenNodes:
    """The nodes that train, the seconds that a stop may take, and the text about them."""

    names: list[str]
    say: str
    stop_grace: float = stop_grace()


def choose_nodes(
    request: LaunchRequest, nodes: Mapping[str, NodeFacts], rows: int | None = None
) -> ChosenNodes:
    """Choose the nodes that train a run, out of `nodes` in order of rank.

    `rows` is the global batch that the nodes have resolved.

    Raises `ConfigError` if none will do, or if the newest checkpoint is on another node.
    """
    rows = rows or request.at_most.global_batch
    named = [name for name in nodes if not request.options.named or name in request.options.nodes]
    if request.settings.parallel == "fsdp":
        chosen = _sharded(request, {name: nodes[name] for name in named}, rows)
    elif request.settings.parallel == "pipeline":
        chosen = _divided(request, nodes, named, rows)
    elif measured := _measured(request, nodes, named):
        unmeasured = [name for name in named if name not in measured]
        chosen = _predicted(request, nodes, measured, unmeasured, rows)
    else:
        chosen = ChosenNodes(named, _devices(nodes, named))
    if not request.resumes:
        return chosen
    reached = {name: node.prepared.checkpoint for name, node in nodes.items()}
    if behind := left_behind(request.name, chosen.names, reached, request.recorded):
        raise ConfigError(*behind)
    point = going_on(chosen.names, reached, request.recorded)
    return replace(chosen, say="\n".join(filter(None, [chosen.say, point and f"  {point}"])))


def _devices(nodes: Mapping[str, NodeFacts], names: Sequence[str]) -> str:
    """Return a line per node: what it computes on."""
    wide = max(map(len, names))
    return "\n".join(f"  {name:<{wide}}  {nodes[name].device}" for name in names)


def _measured(
    request: LaunchRequest, nodes: Mapping[str, NodeFacts], named: Sequence[str]
) -> dict[str, NodeFacts]:
    """Return the nodes with known speeds; none if those of the `named` ones would not do.

    A node that is away is not measured: it has the speed of an earlier run, or none.
    """
    measured = {name: node for name, node in nodes.items() if node.prepared.ranks}
    if len(measured) == len(nodes):
        return measured
    return measured if any(name in measured for name in named) and request.by_speed else {}


def _predicted(
    request: LaunchRequest,
    nodes: Mapping[str, NodeFacts],
    measured: Mapping[str, NodeFacts],
    unmeasured: Sequence[str],
    rows: int,
) -> ChosenNodes:
    """Choose the nodes of a run whose ranks all hold the whole model.

    Those that are `measured` make a choice among themselves; `unmeasured` ones take part.
    """
    settings = request.settings
    most = rows if settings.micro_batch == "auto" else settings.micro_batch
    contenders = contenders_of(measured, most)
    first = next(iter(measured.values()))
    rank = first.prepared.ranks[0]
    gradients = rank["exchange_bytes"]
    traffic = Traffic.of(
        gradients,
        settings.sync_every,
        settings.compress != "none",
        settings.optimizer == "muon",
    )
    division = by_speed if request.by_speed else in_shares(request.shares or None)
    chosen = select(request.options.nodes, contenders, rows, traffic, division)
    devices = {name: node.device for name, node in nodes.items()}
    lines = describe_prediction(
        contenders, chosen, rows, rank["row_tokens"], traffic, division, devices, unmeasured
    )
    return ChosenNodes(
        [name for name in nodes if name in chosen.nodes or name in unmeasured],
        "\n".join(f"  {line}" for line in lines),
        stop_grace(
            chosen.step_seconds * traffic.every,  # a run stops only where its nodes exchange
            measured=True,
            learned=gradients,  # each gradient is as large as its weight
            judging=_held_out_rows(request, first) / chosen.rows_per_second,
        ),
    )


def _held_out_rows(request: LaunchRequest, node: NodeFacts) -> int:
    """Return the number of rows of an evaluation, 0 if there is none."""
    evaluates = request.settings.eval_held_out or request.settings.eval_every
    return node.prepared.held_out_rows if evaluates else 0


def contenders_of(nodes: Mapping[str, NodeFacts], most: int) -> list[Contender]:
    """Return the measured speeds and links of each node, for micro-batches of up to `most` rows."""
    return [
        Contender(
            name,
            tuple(
                Speed(
                    tuple(rank["speed"]["sizes"]), tuple(rank["speed"]["seconds"])
                ).no_larger_than(most)
                for rank in node.prepared.ranks
            ),
            node.links.mbit,
            node.links.milliseconds,
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
            f"slow links: sync_every={ADVISED} with all nodes would reach "
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
    request: LaunchRequest, nodes: Mapping[str, NodeFacts], names: Sequence[str], rows: int
) -> ChosenNodes:
    """Return the choice for a run whose layers are placed on `names`: all of them take part.

    Raises `ConfigError` if there is only one rank.
    """
    if sum(nodes[name].prepared.nproc for name in names) == 1:
        raise ConfigError(
            f"parallel: pipeline needs two ranks or more, and {names[0]} has one; take "
            "parallel=ddp, or more nodes"
        )
    planned, placed = request.training.pipeline, request.placed
    seconds = planned.step_seconds if planned else 0.0
    held_out_rows = _held_out_rows(request, nodes[names[0]])
    return ChosenNodes(
        list(names),
        # The stages have been described when they were placed.
        "" if planned else _devices(nodes, names),
        stop_grace(
            seconds,
            measured=bool(planned),
            learned=placed.learned if placed else 0,
            judging=held_out_rows * seconds / rows,
            gathering=placed.gathering if placed else 0.0,
        ),
    )


def _sharded(request: LaunchRequest, nodes: Mapping[str, NodeFacts], rows: int) -> ChosenNodes:
    """Describe a run whose ranks each hold a part of the model (`parallel: fsdp`).

    It takes all of `nodes`: without one of them, a part of the model would be missing.
    """
    names = list(nodes)
    ranks = sum(node.prepared.nproc for node in nodes.values())
    if ranks == 1:
        raise ConfigError(
            f"parallel: fsdp needs two ranks or more, and {names[0]} has one; take parallel=ddp, "
            "or more nodes"
        )
    if len(names) == 1:
        return ChosenNodes(names, _devices(nodes, names))
    links = [node.links.mbit for node in nodes.values()]
    slowest = min(
        (mbit for link in links for peer, mbit in link.items() if peer in nodes), default=None
    )
    weights = max(node.prepared.weight_bytes for node in nodes.values())
    # The time to compute was not measured; a step takes at least the time to fetch.
    step_seconds = _fetches(request, ranks, rows) * fetch_seconds(weights, ranks, slowest)
    return ChosenNodes(
        names,
        f"{_devices(nodes, names)}\n  {network_cost(weights, ranks, slowest)}",
        stop_grace(step_seconds),
    )


def _fetches(request: LaunchRequest, ranks: int, rows: int) -> int:
    """Return the number of weight fetches per step of a sharded run; in a replay, the most."""
    if request.settings.replay:
        return rows
    # `auto` may come to one row: a rank cannot measure its memory without the other ranks.
    micro_batch = request.settings.micro_batch
    return turns(rows, 1 if micro_batch == "auto" else micro_batch, request.shares or None, ranks)


def left_behind(
    run: str, chosen: Sequence[str], reached: Mapping[str, int | None], recorded: int | None
) -> list[str]:
    """Return reasons not to resume a run on the `chosen` nodes: its checkpoint is elsewhere.

    They would restart from an earlier step or from scratch and overwrite the run's later results.
    `reached` is the step of each node's newest checkpoint, None without any; `recorded` is the step
    of the newest checkpoint in the controller's record of the run.
    """
    best, here = _most(reached.values()), _most(reached[node] for node in chosen)
    if best is not None and (here is None or here < best):
        holder = next(node for node, step in reached.items() if step == best)
        have = "have none" if here is None else f"have that of step {here}"
        return [
            f"resume: the newest checkpoint of {run}, of step {best}, is on {holder}, and the "
            f"nodes that would train ({', '.join(chosen)}) {have}: take it in with "
            f"-e nodes={','.join([*chosen, holder])}"
        ]
    if here is None and recorded is not None:
        return [
            f"resume: {run} has kept checkpoints up to step {recorded}, and none of "
            f"{', '.join(reached)} has one; take the node that does, or train anew under another "
            "name"
        ]
    return []


def going_on(chosen: Sequence[str], reached: Mapping[str, int | None], recorded: int | None) -> str:
    """Describe the resume point of a run in one line; '' without a checkpoint."""
    here = _most(reached[node] for node in chosen)
    if here is None:
        return ""
    later = recorded is not None and recorded > here
    return f"goes on from step {here}" + (
        f"; the checkpoint of step {recorded} is on none of these nodes" if later else ""
    )


def _most(steps: Iterable[int | None]) -> int | None:
    return max((step for step in steps if step is not None), default=None)
