"""Evaluation of a run: held-out perplexity, a sample answer, and the best loss so far."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hearth.data.encode import encode_prompt
from hearth.data.load import Beginning, HeldOutQuestion, TokenData
from hearth.data.mixture import MixedRows
from hearth.data.rows import Rows
from hearth.plan.planner import Planner
from hearth.ranks.control_protocol import EVALUATION
from hearth.record.events import EvaluateEvent, SampleEvent
from hearth.trainer.components import Learning, RankContext
from hearth.trainer.telemetry import Telemetry

_ANSWER_TOKENS = 96


def perplexity_of(loss: float) -> float:
    """Return the exponential of a mean loss; infinity if that overflows."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


class Evaluator:
    """Evaluates the model before, during and after a run; all ranks take part.

    Args:
        keep_best: saves the current weights as the best.

    Attributes:
        best: the lowest held-out loss so far, tracked only with `eval_every`.
        since_best: number of evaluations during the run since that one.
    """

    def __init__(
        self,
        context: RankContext,
        data: TokenData,
        learning: Learning,
        planner: Planner,
        keep_best: Callable[[], object],
    ) -> None:
        self._settings, self._world, self._work = context.settings, context.world, context.work
        self._tokenizer, self._compute = learning.model.tokenizer, learning.compute
        self._data, self._planner, self._keep_best = data, planner, keep_best
        self.best: float | None = None
        self.since_best = 0

    @property
    def gives_up(self) -> bool:
        """Whether `early_stop` evaluations in a row had no lower loss; the same on every rank."""
        limit = self._settings.early_stop
        return limit is not None and self.since_best >= limit

    def evaluate(self, when: str, step: int, telemetry: Telemetry) -> None:
        """Record held-out perplexity and, before and after training, one sample answer.

        Nothing is recorded or changed before the ranks have exchanged the last of it. Raises
        `GroupBroken` if a rank is lost.
        """
        rows, settings = self._data.held_out, self._settings
        wanted = settings.eval_held_out or (settings.eval_every and when != "before")
        if not wanted or not len(rows):
            return
        loss, tokens, by_set = self._losses(rows)
        perplexity = perplexity_of(loss)
        answers = settings.eval_held_out and self._compute.answers != "no" and when != "during"
        sample = self._sample() if answers else None
        telemetry.record(
            EvaluateEvent(
                step=step,
                when=when,
                perplexity=perplexity,
                loss=loss,
                tokens=tokens,
                perplexity_by_set=by_set or None,
            )
        )
        each = ", ".join(f"{name} {value:.2f}" for name, value in by_set.items())
        telemetry.say(
            f"held-out perplexity {when} training: {perplexity:.2f}" + f" ({each})" * bool(each)
        )
        # Every rank has the same loss, so all nodes save the same weights. NaN is never the best.
        lowest = math.inf if self.best is None else self.best
        if settings.eval_every and when != "before" and loss < lowest:
            self.best, self.since_best = loss, 0
            self._keep_best()
        elif when == "during":
            self.since_best += 1
        if sample:
            telemetry.record(SampleEvent(step=step, when=when, **sample))

    def _losses(self, rows: Rows) -> tuple[float, int, dict[str, float]]:
        """Return mean loss and tokens of the held-out rows, and a mixture's perplexity by name."""
        parts = rows.parts if isinstance(rows, MixedRows) else {}
        found = {name: self._loss(part) for name, part in parts.items() if len(part)}
        if not found:
            return *self._loss(rows), {}
        tokens = sum(count for _, count in found.values())
        loss = sum(loss * count for loss, count in found.values()) / tokens
        return loss, tokens, {name: perplexity_of(loss) for name, (loss, _) in found.items()}

    def _loss(self, rows: Rows) -> tuple[float, int]:
        """Return the mean loss over all tokens of held-out rows, in nats a token, and their number.

        The mean is exact: the ranks' sums are added.

        Raises `HearthError` if the rows do not fit into memory, and `GroupBroken` if a rank is
        lost.
        """
        plan, rank, say = self._planner.share(len(rows)), self._world.rank, self._world.say
        own = np.arange(len(rows))[plan.slice_of(rank)]
        total = self._compute.evaluate(rows, own, plan.micro_batch[rank], say, plan.turns)
        tokens = int(rows.label_tokens.sum())
        self._work.wait()
        return sum(self._world.gather(total)) / tokens, tokens

    def _sample(self) -> dict[str, str] | None:
        """Return the answer to the first held-out question, on every rank; None if there is none.

        The leader answers, unless it takes all ranks. Where the data are one text, let the model go
        on with its beginning.
        """
        sample = None
        takes_part = self._world.leads or self._compute.answers == "together"
        if takes_part and (question := self._data.question()) is not None:
            self._work.begin(EVALUATION[1])
            sample = self._answer(question)
        self._work.wait()
        return self._world.from_leader(sample)

    def _answer(self, question: HeldOutQuestion | Beginning) -> dict[str, str]:
        """Return a held-out question, the model's answer to it and the expected one."""
        tokenizer, most = self._tokenizer, _ANSWER_TOKENS
        if isinstance(question, Beginning):
            prompt, following = question.ids, question.following[:most]
            text, expected = (
                tokenizer.decode(ids, skip_special_tokens=True) for ids in (prompt, following)
            )
            most = len(following)
        else:
            prompt = encode_prompt(tokenizer, question.messages)
            text, expected = question.text, question.expected
        answer = self._compute.answer(prompt, most)
        return {"question": text, "answer": answer, "expected": expected}
