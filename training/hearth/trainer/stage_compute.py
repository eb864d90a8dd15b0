"""Computes the rows of a step with this rank's layers, together with the other stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from hearth.base.errors import ConfigError
from hearth.data.rows import IGNORED, Batch, Rows
from hearth.plan.placement import Placement, describe_stage
from hearth.plan.speed import micro_batches, pieces_of
from hearth.ranks.memory import is_out_of_memory, stage_too_large
from hearth.ranks.world import World
from hearth.trainer.compute import Computed, Computing
from hearth.trainer.objective import StepCounts
from hearth.trainer.pipeline import MicroBatch, Passed, StagePasses

if TYPE_CHECKING:
    from hearth.model.stage import StageModel


class StageCompute(Computing):
    """Forward and backward passes of all rows over the layers of one stage.

    All ranks call the same methods with the same rows. `clear` sets all gradients to zero.
    """

    answers = "together"

    def __init__(
        self,
        model: StageModel,
        rows: Rows,
        passes: StagePasses,
        placement: Placement,
        world: World,
        clear: Callable[[], None],
    ) -> None:
        self._model, self._rows, self._passes = model, rows, passes
        self._placement, self._world, self._clear = placement, world, clear

    @property
    def sent(self) -> int:
        """Bytes of hidden states and gradients that this rank has sent so far."""
        return self._passes.sent

    def gradients(
        self,
        own: np.ndarray,
        most: int,
        counts: StepCounts,
        seed_of: Callable[[int], int],
        say: Callable[[str], None],
        turns: int = 0,
    ) -> Computed:
        """Add the gradients of the rows numbered `own`, at most `most` at once, to cleared ones.

        If any stage runs out of memory, all of them compute all rows again, in smaller
        micro-batches. Raises `HearthError` on every rank if one row does not fit.
        """

        def attempt(sizes: Sequence[int]) -> Passed:
            self._clear()
            self._model.before_step()
            return self._passes.train(
                [
                    MicroBatch(self._rows, numbers, [seed_of(int(each)) for each in numbers])
                    for numbers in pieces_of(own, sizes)
                ],
                counts.weight,
            )

        passed, most = self._together(attempt, self._rows, own, most)
        # A stage computes its part of each token; rounded so that the parts add up.
        tokens, layers = int(self._rows.tokens[own].sum()), self._model.layers
        first, last = (
            tokens * end // self._placement.layers for end in (layers.start, layers.stop)
        )
        return Computed(
            passed.loss, passed.seconds, most, last - first, passed.waited, self._squares()
        )

    def _together(
        self,
        attempt: Callable[[Sequence[int]], Passed],
        rows: Rows,
        own: np.ndarray,
        most: int,
    ) -> tuple[Passed, int]:
        """Return the pass of `attempt` that fitted all stages, and its most rows at once.

        Its times are those of all attempts. It has waited for the others to the end of their
        passes, too: a stage whose passes are over early waits for those that are not.

        `attempt` gets the sizes of the micro-batches; see `gradients` for its errors.
        """
        own_tokens = int(rows.tokens[own].max())
        seconds = waited = 0.0
        while True:
            sizes = micro_batches(len(own), most)
            try:
                passed = attempt(sizes)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                # Between the passes over its layers: there is no room even for what arrives.
                stage = self._stage(self._world.rank)
                raise stage_too_large(stage, own_tokens, max(sizes)) from error
            began = time.perf_counter()
            fitted = self._world.gather(passed.fitted)
            seconds += passed.seconds
            waited += passed.waited + time.perf_counter() - began
            if all(fitted):
                return replace(passed, seconds=seconds, waited=waited), most
            self._model.release()
            largest, stage = max(sizes), self._stage(fitted.index(False))
            if largest == 1:
                # All ranks raise it, so one of them reports it.
                raise ConfigError(*stage_too_large(stage, own_tokens).findings)
            most = largest // 2
            if self._world.leads:
                # Not by `say`, which would name the leader's node.
                what = f"{largest} rows at once do not fit into the memory of {stage}"
                print(f"{what}; all stages continue with {most}", flush=True)

    def _stage(self, rank: int) -> str:
        """Return a description of the stage of `rank`."""
        position = self._placement.position(rank)
        assert position is not None
        stages = self._placement.stages
        layers = describe_stage(stages[position], self._world.layout[rank])
        return f"stage {position + 1} of {len(stages)} (rank {rank}, {layers})"

    def _squares(self) -> float:
        """Return the squared norm of this stage's gradients."""
        gradients = [each.grad for _, each in self._model.trainable() if each.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients).item()
        return norm * norm

    def not_finite(self, own: np.ndarray, counts: StepCounts, turns: int = 0) -> list[int]:
        """Return the rows whose gradient is not finite on any stage, on the leader only."""
        found: list[int] = []
        for row in own.tolist():
            self._clear()
            self._passes.train([MicroBatch(self._rows, np.array([row]))], counts.weight)
            if not all(self._world.gather(bool(np.isfinite(self._squares())))):
                found.append(row)
        self._clear()
        return found if self._world.leads else []

    def evaluate(
        self,
        rows: Rows,
        own: np.ndarray,
        most: int,
        counts: StepCounts,
        say: Callable[[str], None],
        turns: int = 0,
    ) -> Sequence[float]:
        """Return the summed token loss of the rows on the last stage, and 0 on the others."""

        def attempt(sizes: Sequence[int]) -> Passed:
            return self._passes.evaluate(
                [MicroBatch(rows, numbers) for numbers in pieces_of(own, sizes)]
            )

        self._model.network.eval()
        try:
            return [self._together(attempt, rows, own, most)[0].loss]
        finally:
            self._model.network.train()

    def answer(self, prompt: list[int], most: int, base: bool = False) -> str:
        """Return the greedy continuation of `prompt` by at most `most` tokens, on every rank."""
        self._model.network.eval()
        ids = list(prompt)
        try:
            for _ in range(most):
                ids.append(self._passes.next_token(_row(ids)))
                if ids[-1] in self._model.end_tokens:
                    break
        finally:
            self._model.network.train()
        return self._model.tokenizer.decode(ids[len(prompt) :], skip_special_tokens=True).strip()


def _row(ids: list[int]) -> Batch:
    """Return one row without labels."""
    row = np.array([ids])
    return Batch(row, np.full_like(row, IGNORED), np.arange(len(ids))[None], [len(ids)])
