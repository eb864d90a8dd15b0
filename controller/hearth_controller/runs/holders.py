"""The nodes that can answer with a run's model. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hearth_controller.runs.observed import ObservedRun


def holders(
    run: ObservedRun, curves: Sequence[str], whole: Mapping[str, Collection[str]]
) -> list[str]:
    """Return the nodes of a run, those first that merge or load its model soonest.

    First come those that have the whole base model, by `whole`: the models that are so, by node.
    Of them it is the one with the newest `curves`, of rank 0 unless it was lost, then by rank.
    """
    nodes = dict.fromkeys([*curves, *run.parts])
    if run.run is None:
        return list(nodes)
    folder = run.run.source.folder
    return sorted(nodes, key=lambda node: folder not in whole.get(node, ()))
