"""The state of training of a pipeline: each rank has that of its layers, every node keeps all.

It is small beside the weights, which are frozen: so each node's checkpoint has the state of all
layers, in the form that one rank with the whole model writes. No node's disk is then the only one
that holds some layers, and a run goes on at any placement, or with the whole model on each rank.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearth.plan.placement import Placement
from hearth.ranks.world import World
from hearth.trainer.handover import hand_over
from hearth.trainer.training_state import TrainingState, load_parts, save_parts

if TYPE_CHECKING:
    from hearth.model.stage import StageModel


class StageState(TrainingState):
    """The state of the layers of `model`, a stage of `placement`, and its parts `changing`."""

    model: StageModel

    def __init__(
        self, model: StageModel, changing: Mapping[str, Any], placement: Placement, world: World
    ) -> None:
        super().__init__(model, changing)
        self._placement, self._world = placement, world

    def writer(self) -> Callable[[Path, str], None]:
        """Return a function that writes the state of all layers (see `TrainingState.writer`)."""
        weights = self._of_all(self.model.adapter_tensors())
        moments = self._of_all(self._moments())
        states = {name: part.state_dict() for name, part in self._changing.items()}

        def save(folder: Path, base: str) -> None:
            self._save_weights(folder / self.model.learned, base, weights)
            everything = list(itertools.chain(*moments))
            states["optimizer"] = _optimizer_state(states["optimizer"], everything)
            save_parts(folder, states)

        return save

    def weights_writer(self) -> Callable[[Path, str], None]:
        """Return a function that writes the trained weights of all layers."""
        weights = self._of_all(self.model.adapter_tensors())
        return lambda folder, base: self._save_weights(folder, base, weights)

    def load(self, folder: Path) -> None:
        """Restore the state of this rank's layers from the one of all layers in `folder`."""
        self.model.restore(folder / self.model.learned)
        saved = load_parts(folder)
        everything = saved["optimizer"]["state"]
        counts = dict(zip(self._world.members, self._world.gather(len(self._trained)), strict=True))
        ranks = self._placement.ranks
        first = sum(counts[rank] for rank in ranks[: ranks.index(self._world.rank)])
        own = [everything.get(first + number, {}) for number in range(len(self._trained))]
        saved["optimizer"] = _optimizer_state(saved["optimizer"], own)
        self._load_parts(saved)

    @property
    def _trained(self) -> list[str]:
        """The names of this rank's trained parameters, in the order of the optimizer's."""
        return [name for name, _ in self.model.trainable()]

    def _moments(self) -> list[Any]:
        """Return the optimizer's state of each of this rank's parameters."""
        state = self._changing["optimizer"].state_dict()["state"]
        return [state.get(number, {}) for number in range(len(self._trained))]

    def _of_all(self, own: Any) -> list[Any]:
        """Return every stage's `own`, in their order; [] on a rank that writes nothing."""
        writes = self._world.keeps
        found = [hand_over(self._world, rank, own, writes) for rank in self._placement.ranks]
        return found if writes else []

    def _save_weights(self, folder: Path, base: str, weights: list[dict[str, Any]]) -> None:
        """Write the trained `weights` of all stages to `folder` as one adapter."""
        whole = {name: tensor for each in weights for name, tensor in each.items()}
        self.model.save_whole(folder, base, whole)


def _optimizer_state(state: Mapping[str, Any], moments: list[Any]) -> dict[str, Any]:
    """Return an optimizer's `state` with the `moments` of these parameters instead of its own."""
    (group,) = state["param_groups"]
    return {
        "state": {number: each for number, each in enumerate(moments) if each},
        "param_groups": [dict(group, params=list(range(len(moments))))],
    }
