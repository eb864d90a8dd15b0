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
        self._objective, self._onto = learning.objective, context.run.start is not None
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
        means, tokens, by_set = self._means(rows)
        loss, perplexity = means.pop("loss"), perplexity_of(means.pop("nll"))
        answers = settings.eval_held_out and self._compute.answers != "no" and when != "during"
        sample = self._sample(when) if answers else None
        telemetry.record(
            EvaluateEvent(
                step=step,
                when=when,
                perplexity=perplexity,
                loss=loss,
                tokens=tokens,
                perplexity_by_set=by_set or None,
                **means,
            )
        )
        each = ", ".join(f"{name} {value:.2f}" for name, value in by_set.items())
        judged = ""
        if means:
            margin = means["chosen_reward"] - means["rejected_reward"]
            judged = f"accuracy {means['reward_accuracy']:.2f}, margin {margin:.2f}, "
        telemetry.say(
            f"held-out {judged}perplexity {when} training: {perplexity:.2f}"
            + f" ({each})" * bool(each)
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

    def _means(self, rows: Rows) -> tuple[dict[str, float], int, dict[str, float]]:
        """Return the objective's means over held-out rows, and a mixture's perplexity by name.

        Between the two is the number of learned tokens.
        """
        # The means of preferences are over pairs, and their reference is that of all rows.
        apart = isinstance(rows, MixedRows) and self._settings.objective == "sft"
        parts = rows.parts if apart else {}
        found = {name: self._mean(part) for name, part in parts.items() if len(part)}
        if not found:
            return *self._mean(rows), {}
        tokens = sum(count for _, count in found.values())
        loss = sum(means["loss"] * count for means, count in found.values()) / tokens
        by_set = {name: perplexity_of(means["nll"]) for name, (means, _) in found.items()}
        return {"loss": loss, "nll": loss}, tokens, by_set

    def _mean(self, rows: Rows) -> tuple[dict[str, float], int]:
        """Return the objective's means over held-out rows, and the number of learned tokens.

        The means are exact: the ranks' sums are added.

        Raises `HearthError` if the rows do not fit into memory, and `GroupBroken` if a rank is
        lost.
        """
        plan, rank, say = self._planner.share(len(rows)), self._world.rank, self._world.say
        numbers = np.arange(len(rows))
        own, most = numbers[plan.slice_of(rank)], plan.micro_batch[rank]
        counts = self._objective.complete(
            self._objective.counts(rows, numbers),
            rows,
            own,
            lambda: self._compute.log_probs(rows, own, most, say, True),
            lambda values: [each for found in self._gather(values) for each in found],
        )
        sums = self._compute.evaluate(rows, own, most, counts, say, plan.turns)
        everyone = filter(None, self._gather(list(sums)))  # a rank without rows has no sums
        of_all = [sum(each) for each in zip(*everyone, strict=True)]
        return self._objective.means(of_all, counts), int(rows.label_tokens.sum())

    def _gather(self, values: list[float]) -> list[list[float]]:
        """Return the numbers of every rank."""
        self._work.wait()
        return self._world.gather(values)

    def _sample(self, when: str) -> dict[str, str] | None:
        """Return the answer to the first held-out question, on every rank; None if there is none.

        The leader answers, unless it takes all ranks. Where the data are one text, let the model go
        on with its beginning.
        """
        sample = None
        takes_part = self._world.leads or self._compute.answers == "together"
        if takes_part and (question := self._data.question()) is not None:
            self._work.begin(EVALUATION[1])
            sample = self._answer(question, when)
        self._work.wait()
        return self._world.from_leader(sample)

    def _answer(self, question: HeldOutQuestion | Beginning, when: str) -> dict[str, str]:
        """Return a held-out question, the model's answer to it and the expected one.

        Before a run on top of an adapter, there is that of the base model, too.
        """
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
        answers = {"answer": self._compute.answer(prompt, most)}
        if self._onto and when == "before" and self._compute.answers == "alone":
            answers["base"] = self._compute.answer(prompt, most, base=True)
        return {"question": text, **answers, "expected": expected}
