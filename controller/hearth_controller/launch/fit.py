"""Does a run's model fit the nodes that were inspected, whole or by layers? Pure.

The verdict is that of `hearth.fit`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hearth.config import Settings
from hearth.config.conflicts import conflicts_of
from hearth.config.shape import Shape
from hearth.fit.capacity import Room, rooms_of_ranks
from hearth.fit.home import Candidate, too_small, unplaceable
from hearth.fit.misfits import holding, imprecise, misfits, unknown
from hearth_controller.launch.answers import Inspection
from hearth_controller.launch.request import LaunchRequest


@dataclass(frozen=True)
class FitVerdict:
    """Whether and how the model of a run fits.

    Attributes:
        parallel: the run's setting, with `auto` resolved.
        findings: by node.
        lines: to show.
        whole_on: with `auto` resolved to `pipeline`, the nodes that hold the whole model in the
            precision that they take without the others; some of them may be faster so.
    """

    parallel: str
    findings: dict[str, list[str]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    whole_on: tuple[str, ...] = ()


def rooms_of(
    nodes: Mapping[str, Inspection], memory_limit: float | None = None
) -> dict[str, list[Room]]:
    """Return the memory for each rank of each node. Nodes on one computer share its memory."""
    return {
        name: rooms_of_ranks(
            node.memory,
            node.own["nproc"],
            len(nodes) if node.own["one_computer"] else 1,
            memory_limit,
        )
        for name, node in nodes.items()
    }


def candidates_of(
    nodes: Mapping[str, Inspection], memory_limit: float | None = None
) -> list[Candidate]:
    """Return the unmeasured ranks of each node, in order."""
    return [
        Candidate(name, room)
        for name, rooms in rooms_of(nodes, memory_limit).items()
        for room in rooms
    ]


def shape_of_run(request: LaunchRequest, nodes: Mapping[str, Inspection]) -> Shape | None:
    """Return the sizes of the model, None if they are not known yet."""
    known = next((node.shape for node in nodes.values() if node.shape), None)
    return request.shape or (known and Shape(**known)) or None


def check_fit(request: LaunchRequest, nodes: Mapping[str, Inspection]) -> FitVerdict:
    """Return the verdict about model and precision of a run on the nodes that answered."""
    verdict = _check_memory(request, nodes)
    findings = {name: list(found) for name, found in verdict.findings.items()}
    for name, finding in imprecise(request.settings, candidates_of(nodes)).items():
        findings.setdefault(name, []).append(finding)
    return replace(verdict, findings=findings)


def _check_memory(request: LaunchRequest, nodes: Mapping[str, Inspection]) -> FitVerdict:
    """Return the verdict about the memory that the model takes.

    With `fit: warn` a misfit is a line. So is a model of unknown size, which is not judged. `auto`
    is `ddp` where that fits all nodes, or where the model cannot be divided; a line says why not.
    """
    settings, model = request.settings, request.training.source.name
    whole = settings.parallel if settings.parallel != "auto" else "ddp"
    shape = shape_of_run(request, nodes)
    if shape is None:
        return FitVerdict(whole, lines=[unknown(model)])
    ranks = candidates_of(nodes, settings.memory_limit)
    if settings.parallel == "pipeline":
        return _divided(settings, shape, ranks)
    as_whole = settings.model_copy(update={"parallel": whole})
    found = misfits(model, as_whole, shape, ranks)
    divided = settings.model_copy(update={"parallel": "pipeline"})
    lines = []
    if found and settings.parallel == "auto" and len(ranks) > 1:
        why = _undividable(request, divided, shape, ranks)
        if not why:
            verdict = _divided(divided, shape, ranks, holding(as_whole, shape, ranks))
            # Typed shares are of the layers: other settings are no advice for them.
            if not verdict.findings or request.shares:
                return verdict
            why = "; ".join(itertools.chain.from_iterable(verdict.findings.values()))
        lines.append(f"parallel=auto: ddp, since its layers cannot be divided: {why}")
    if settings.fit == "warn":
        lines += [f"{name}: WARNING: {finding}" for name, finding in found.items()]
        return FitVerdict(whole, lines=lines)
    return FitVerdict(whole, {name: [finding] for name, finding in found.items()}, lines)


def _divided(
    settings: Settings, shape: Shape, ranks: Sequence[Candidate], whole_on: Sequence[str] = ()
) -> FitVerdict:
    """Return the verdict about a model whose layers are divided over all of the nodes."""
    finding = unplaceable(settings, shape, ranks)
    warns = finding and settings.fit == "warn"
    return FitVerdict(
        "pipeline",
        {ranks[0].node: [finding]} if finding and not warns else {},
        [f"WARNING: {finding}"] if warns else [],
        tuple(whole_on),
    )


def _undividable(
    request: LaunchRequest, divided: Settings, shape: Shape, ranks: Sequence[Candidate]
) -> str:
    """Return why `auto` may not divide the layers of the model over all of the nodes, or ''."""
    if contradictions := conflicts_of(divided):
        return "; ".join(contradictions)
    if typed := [
        f"-e {name}=" for name in ("elastic", "min_nodes") if getattr(request.options, name)
    ]:
        return (
            f"{', '.join(typed)} lets the others do without a node, whose layers none of them has"
        )
    if divided.fit != "warn" and (small := too_small(divided, shape, ranks)):
        return f"{', '.join(small)} has no room for one layer"
    return ""
