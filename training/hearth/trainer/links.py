"""The speed of the links in a step, from what all ranks reported in its sum."""

from __future__ import annotations

from hearth.config import Settings
from hearth.plan.link_watch import WHOLE, Exchanged, ring_share
from hearth.ranks.hop import Hop
from hearth.ranks.world import World
from hearth.trainer.window import StepResult


def exchanged(
    world: World, settings: Settings, result: StepResult, seconds: float, given: int
) -> Exchanged:
    """Return a step of `seconds` in which each rank gives `given` bytes to the exchange."""
    summed, members, layout = result.summed, world.members, world.layout
    exchange = summed.exchange_seconds(members)
    carried = given * ring_share(len(members))
    hops = {}
    for sender, rank in zip((members[-1], *members), members, strict=False):
        hop = Hop(round(summed.hop_bytes[rank]), summed.hop_seconds[rank])
        if hop.mbit:
            pair = layout[sender], layout[rank]
            hops[pair] = min(hop.mbit, hops.get(pair, hop.mbit))
    if world.carrier != "ring" and exchange > 0:
        hops = {WHOLE: carried * 8e-6 / exchange}
    return Exchanged(
        seconds,
        exchange,
        tuple(layout[rank] for rank in members),
        tuple(summed.tokens[rank] for rank in members),
        tuple(summed.compute_seconds[rank] for rank in members),
        carried,
        hops,
        settings.sync_every,
        may_wait=settings.optimizer in ("auto", "adamw") and settings.precision != "fp16",
    )
