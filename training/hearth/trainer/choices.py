"""The values of `auto` settings that all ranks share, and that a resumed run keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from hearth.config import Settings
from hearth.model import precision
from hearth.model.optimizer import Means, choose_optimizer, means_here
from hearth.ranks.world import World


@dataclass(frozen=True)
class Choices:
    """Names of the precision and of the optimizer, never `auto`."""

    precision: str
    optimizer: str


def choose(settings: Settings, world: World, begun: Mapping[str, str]) -> Choices:
    """Return the choices of a run; all members of the group take part.

    `begun` are those of the run so far, which hold on whatever nodes it goes on: of its checkpoint,
    or of the group that this rank will join. Empty for a new run.

    Raises `ConfigError` naming the nodes that cannot follow.
    """
    everyone = world.gather((world.node, precision.supported(world.device)))
    means = [Means(**each) for each in world.gather(asdict(means_here(world.node, world.device)))]
    return Choices(
        precision.choose(begun.get("precision", settings.precision), everyone),
        choose_optimizer(
            begun.get("optimizer", settings.optimizer), means, averaged=settings.sync_every > 1
        ),
    )
