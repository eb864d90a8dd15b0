"""The checkpoint that a run resumes from, and whether the chosen nodes have it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


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
