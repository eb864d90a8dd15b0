"""The nodes that can answer with a run's model. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hearth_controller.runs.observed import ObservedRun


def holders(
    run: ObservedRun, curves: Sequence[str], partial: Mapping[str, Collection[str]]
) -> list[str]:
    """Return the nodes of a run, those first that merge or load its model soonest.

    That is the one with the newest `curves`, of rank 0 unless it was lost, then the others by rank;
    but last come those whose cache has only some layers of the base model and would have to fetch
    the rest. `partial` has the model folders of which that is so, by node.
    """
    nodes = dict.fromkeys([*curves, *run.parts])
    if run.run is None:
        return list(nodes)
    folder = run.run.source.folder
    return sorted(nodes, key=lambda node: folder in partial.get(node, ()))
