"""How good what was learned is: held-out perplexity, an answered question, and the best so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager

from hearth.config import Settings
from hearth.data import TokenData, encode_prompt
from hearth.model.backend import TrainableModel
from hearth.plan.planner import Planner
from hearth.ranks.world import World
from hearth.trainer import held_out
from hearth.trainer.telemetry import Telemetry

_ANSWER_TOKENS = 96


class Judge:
    """Judges the model of a run before, during and after it; all ranks take part.

    Args:
        keep_best: writes what was learned so far, as the best.

    Attributes:
        best: the lowest held-out loss so far, where the run looks for it (`eval_every`).
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
        """Record held-out perplexity; before and after training one answered question too."""
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
        # Every rank knows the same loss, so all nodes keep the same one.
        if settings.eval_every and when != "before" and _lower(result.loss, self.best):
            self.best = result.loss
            self._keep_best()
        # With fsdp every token of an answer would fetch the whole model.
        answered = settings.evaluate and settings.parallel == "ddp"
        if self._world.leads and when != "during" and answered:
            self._answer(when, step, telemetry)
        self._world.barrier()

    def _answer(self, when: str, step: int, telemetry: Telemetry) -> None:
        """Record the model's answer to the first held-out question, on rank 0."""
        for question in self._data.questions(limit=1):
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
    """Return whether nothing before had a loss as low; one that is not a number never is."""
    return loss < (math.inf if best is None else best)
