"""Does a run's model fit the nodes that were inspected, whole or by layers? Pure.

The verdict is that of `hearth.fit`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hearth.config import Settings
from hearth.config.conflicts import conflicts_of
from hearth.config.shape import Shape
from hearth.fit.capacity import Room, rooms_of_ranks
from hearth.fit.home import Candidate, too_small, unplaceable
from hearth.fit.misfits import holding, imprecise, misfits, unknown


@dataclass(frozen=True)
class Verdict:
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
    looks: Mapping[str, Mapping[str, Any]], memory_limit: float | None = None
) -> dict[str, list[Room]]:
    """Return the memory for each rank of each node that answered.

    `looks` are results of the module `hearth_look` by node. Nodes on one computer share its memory.
    """
    rooms = {}
    for name, look in looks.items():
        if facts := look.get("facts"):
            own = facts["own"]
            sharing = len(looks) if own["one_computer"] else 1
            rooms[name] = rooms_of_ranks(facts["memory"], own["nproc"], sharing, memory_limit)
    return rooms


def candidates_of(
    looks: Mapping[str, Mapping[str, Any]], memory_limit: float | None = None
) -> list[Candidate]:
    """Return the unmeasured ranks of each node that answered, in order."""
    return [
        Candidate(name, room)
        for name, rooms in rooms_of(looks, memory_limit).items()
        for room in rooms
    ]


def shape_of_run(run: Mapping[str, Any], looks: Mapping[str, Mapping[str, Any]]) -> Shape | None:
    """Return the sizes of the model, None if they are not known yet."""
    shape = run["shape"] or next(
        (look["facts"]["shape"] for look in looks.values() if look.get("facts", {}).get("shape")),
        None,
    )
    return shape and Shape(**shape)


def check_fit(run: Mapping[str, Any], looks: Mapping[str, Mapping[str, Any]]) -> Verdict:
    """Return the verdict about model and precision of `run` on the nodes that answered."""
    verdict = _check_memory(run, looks)
    settings = Settings.model_validate(run["settings"])
    findings = {name: list(found) for name, found in verdict.findings.items()}
    for name, finding in imprecise(settings, candidates_of(looks)).items():
        findings.setdefault(name, []).append(finding)
    return replace(verdict, findings=findings)


def _check_memory(run: Mapping[str, Any], looks: Mapping[str, Mapping[str, Any]]) -> Verdict:
    """Return the verdict about the memory that the model takes.

    With `fit: warn` a misfit is a line. So is a model of unknown size, which is not judged. `auto`
    is `ddp` where that fits all nodes, or where the model cannot be divided; a line says why not.
    """
    settings = Settings.model_validate(run["settings"])
    whole = settings.parallel if settings.parallel != "auto" else "ddp"
    shape = shape_of_run(run, looks)
    if shape is None:
        return Verdict(whole, lines=[unknown(run["model"])])
    ranks = candidates_of(looks, settings.memory_limit)
    if settings.parallel == "pipeline":
        return _divided(settings, shape, ranks)
    as_whole = settings.model_copy(update={"parallel": whole})
    found = misfits(run["model"], as_whole, shape, ranks)
    divided = settings.model_copy(update={"parallel": "pipeline"})
    lines = []
    if found and settings.parallel == "auto" and len(ranks) > 1:
        why = _undividable(run, divided, shape, ranks)
        if not why:
            verdict = _divided(divided, shape, ranks, holding(as_whole, shape, ranks))
            # Typed shares are of the layers: other settings are no advice for them.
            if not verdict.findings or run["split"]:
                return verdict
            why = "; ".join(itertools.chain.from_iterable(verdict.findings.values()))
        lines.append(f"parallel=auto: ddp, since its layers cannot be divided: {why}")
    if settings.fit == "warn":
        lines += [f"{name}: WARNING: {finding}" for name, finding in found.items()]
        return Verdict(whole, lines=lines)
    return Verdict(whole, {name: [finding] for name, finding in found.items()}, lines)


def _divided(
    settings: Settings, shape: Shape, ranks: Sequence[Candidate], whole_on: Sequence[str] = ()
) -> Verdict:
    """Return the verdict about a model whose layers are divided over all of the nodes."""
    finding = unplaceable(settings, shape, ranks)
    warns = finding and settings.fit == "warn"
    return Verdict(
        "pipeline",
        {ranks[0].node: [finding]} if finding and not warns else {},
        [f"WARNING: {finding}"] if warns else [],
        tuple(whole_on),
    )


def _undividable(
    run: Mapping[str, Any], divided: Settings, shape: Shape, ranks: Sequence[Candidate]
) -> str:
    """Return why `auto` may not divide the layers of the model over all of the nodes, or ''."""
    if contradictions := conflicts_of(divided):
        return "; ".join(contradictions)
    if typed := [f"-e {name}=" for name in ("elastic", "min_nodes") if run[name]]:
        return (
            f"{', '.join(typed)} lets the others do without a node, whose layers none of them has"
        )
    if divided.fit != "warn" and (small := too_small(divided, shape, ranks)):
        return f"{', '.join(small)} has no room for one layer"
    return ""
