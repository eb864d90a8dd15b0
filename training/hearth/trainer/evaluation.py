"""Evaluation of a run: held-out perplexity, a sample answer, and the best loss so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager

from hearth.config import Settings
from hearth.data.load import TokenData
from hearth.data.template import encode_prompt
from hearth.model.backend import TrainableModel
from hearth.plan.planner import Planner
from hearth.ranks.world import World
from hearth.trainer import held_out
from hearth.trainer.telemetry import Telemetry

_ANSWER_TOKENS = 96


class Judge:
    """Evaluates the model before, during and after a run; all ranks take part.

    Args:
        keep_best: saves the current weights as the best.

    Attributes:
        best: the lowest held-out loss so far, tracked only with `eval_every`.
    """

    def __init__(
        self,
        settings: Settings,
        data: TokenData,
        model: TrainableModel,
        world: World,
        planner: Planner,
        autocast: Callable[[], AbstractContextManager[object]],
        keep_best: Callable[[], object],
    ) -> None:
        self._settings, self._data, self._model = settings, data, model
        self._world, self._planner, self._autocast = world, planner, autocast
        self._keep_best = keep_best
        self.best: float | None = None

    def judge(self, when: str, step: int, telemetry: Telemetry) -> None:
        """Record held-out perplexity and, before and after training, one sample answer."""
        rows, settings = self._data.held_out, self._settings
        wanted = settings.evaluate or (settings.eval_every and when != "before")
        if not wanted or not len(rows):
            return
        plan = self._planner.share(len(rows))
        result = held_out.held_out_loss(
            self._model,
            rows,
            self._world,
            plan,
            self._autocast,
            say=lambda words: print(f"{self._world.node}: {words}", flush=True),
        )
        telemetry.record(
            "evaluate",
            step=step,
            when=when,
            perplexity=result.perplexity,
            loss=result.loss,
            tokens=result.tokens,
        )
        telemetry.say(f"held-out perplexity {when} training: {result.perplexity:.2f}")
        # Every rank has the same loss, so all nodes save the same weights.
        if settings.eval_every and when != "before" and _lower(result.loss, self.best):
            self.best = result.loss
            self._keep_best()
        # With fsdp each generated token would gather the whole model over the network.
        answered = settings.evaluate and settings.parallel == "ddp"
        if self._world.leads and when != "during" and answered:
            self._answer(when, step, telemetry)
        self._world.barrier()

    def _answer(self, when: str, step: int, telemetry: Telemetry) -> None:
        """Record the model's answer to the first held-out question, on rank 0."""
        if question := self._data.question():
            with self._autocast():
                answer = self._model.generate(
                    encode_prompt(self._model.tokenizer, question.messages), _ANSWER_TOKENS
                )
            telemetry.record(
                "sample",
                step=step,
                when=when,
                question=question.text,
                answer=answer,
                expected=question.expected,
            )


def _lower(loss: float, best: float | None) -> bool:
    """Return whether `loss` is below `best`; NaN never is."""
    return loss < (math.inf if best is None else best)
