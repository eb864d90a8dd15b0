"""The pipeline that the controller has planned for a run, as `run.yml` records it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlannedPipeline:
    """Placement of the layers and predicted speed, for `parallel: pipeline`.

    Attributes:
        stages: rank and number of layers of each stage, in the order of the activations.
        micro_batch: most rows of a micro-batch.
        step_seconds: predicted duration of a full step.
    """

    stages: tuple[tuple[int, int], ...]
    micro_batch: int
    step_seconds: float
