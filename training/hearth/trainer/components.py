"""The parts that a rank's training is made of; `assembly` makes them, and hands them to others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hearth.config import Run, Settings
from hearth.data.rows import Rows
from hearth.model.backend import TrainableModel
from hearth.plan.placement import Placement
from hearth.plan.row_order import RowOrder, StreamOrder
from hearth.ranks.energy import Meter
from hearth.ranks.world import World
from hearth.record.own_disk import OwnDisk
from hearth.trainer.compute import Computing
from hearth.trainer.exchange import Exchange
from hearth.trainer.objective import Objective
from hearth.trainer.optimizer_step import Learner
from hearth.trainer.rounds import Rounds
from hearth.trainer.training_state import TrainingState
from hearth.trainer.work import Work


@dataclass(frozen=True)
class RankContext:
    """A rank of a run: its group, its reports of work, its node's meter and disk.

    `folder` is the run's, `checkpoints` that of its checkpoints on this node.
    """

    run: Run
    folder: Path
    checkpoints: Path
    world: World
    work: Work
    energy: Meter
    disk: OwnDisk

    @property
    def settings(self) -> Settings:
        """The settings of the run."""
        return self.run.settings


@dataclass(frozen=True)
class Choices:
    """Names of the precision and of the optimizer, never `auto`."""

    precision: str
    optimizer: str


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run that hold from its first step to its last.

    Attributes:
        rows: the training rows, in this `order`.
        steps: number of the last step.
        inputs: fingerprints of data and model.
        identity: what must be equal on all ranks, these fingerprints among it.
        placement: of the model's layers, if each rank has some of them.
        power: facts about the power limit of this rank's GPU.
    """

    rows: Rows
    order: RowOrder | StreamOrder
    steps: int
    choices: Choices
    inputs: Mapping[str, str]
    identity: Mapping[str, str]
    placement: Placement | None
    power: Mapping[str, Any]


@dataclass(frozen=True)
class Learning:
    """The model, and the parts that change it in a step.

    `state` is that of the model and of the parts that belong in a checkpoint; `rounds` is None
    unless ranks take local steps.
    """

    model: TrainableModel
    parameters: list[torch.nn.Parameter]
    objective: Objective
    compute: Computing
    exchange: Exchange
    learner: Learner
    rounds: Rounds | None
    state: TrainingState
