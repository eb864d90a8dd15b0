"""Computes this rank's rows with the whole model, in smaller micro-batches if memory runs out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import numpy as np
import torch

from hearth.data.rows import Rows
from hearth.model.backend import TrainableModel
from hearth.model.noise import seed_torch
from hearth.plan.speed import micro_batches, pieces_of
from hearth.ranks.control_protocol import ANSWERS, EVALUATION, MICRO_BATCH, SEARCH
from hearth.ranks.memory import is_out_of_memory, row_too_large, too_large_together
from hearth.trainer.answers import answers_of
from hearth.trainer.objective import MicroRows, Objective, StepCounts
from hearth.trainer.work import Work

T = TypeVar("T")


def retry_smaller(
    attempt: Callable[[Sequence[int]], T],
    rows: Rows,
    own: np.ndarray,
    most: int,
    turns: int,
    release: Callable[[], None],
    say: Callable[[str], None],
) -> tuple[T, int]:
    """Return the result of `attempt` and the maximum number of rows at once that fitted.

    `attempt` gets the sizes of the micro-batches of the rows numbered `own`; after an out-of-memory
    error it is called again, after `release`, with half as many rows at once. With `turns` all
    ranks compute that many micro-batches together (see `Plan.turns`), and no rank can retry alone.

    Raises `HearthError` if one row alone does not fit, or with `turns` the planned number.
    """
    while True:
        sizes = micro_batches(len(own), most, turns)
        try:
            return attempt(sizes), most
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        largest = max(sizes)
        if turns:
            raise too_large_together(largest)
        if largest == 1:
            raise row_too_large(int(rows.tokens[own].max()))
        most = largest // 2
        release()
        say(f"{largest} rows at once do not fit into memory; continuing with {most}")


@dataclass(frozen=True)
class Computed:
    """Loss, time and micro-batch size of one rank's rows in a step.

    Attributes:
        loss: their part of the global mean.
        seconds: from the first row to the last gradient, failed attempts included.
        micro_batch: rows at once that fit into the memory: as planned, or fewer after an OOM.
        tokens: those of the rows; for some layers only, their part of it.
        waited: further seconds of waiting for other stages of a pipeline.
        squares: squared norm of the gradient if this rank has only a part of it; else None.
        sums: of the objective over the rows (`Objective.sums`).
    """

    loss: float
    seconds: float
    micro_batch: int
    tokens: int
    waited: float = 0.0
    squares: float | None = None
    sums: Sequence[float] = ()


class Computing(Protocol):
    """The computing of a rank in a run, with the whole model or with some of its layers.

    Attributes:
        answers: how the ranks answer a question: `alone` if one of them can, `together` if it takes
            all, `no` if it would take too long.
    """

    answers: Literal["alone", "together", "no"]

    @property
    def sent(self) -> int:
        """Bytes that this rank has sent to others within its computing so far; 0 by default."""
        return 0

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

        `seed_of` maps a row to its seed. With `turns`, see `retry_smaller`.
        """
        ...

    def not_finite(self, own: np.ndarray, counts: StepCounts, turns: int = 0) -> list[int]:
        """Return the rows of `own` whose gradient, computed alone, is not finite.

        The list is empty if only the sum of all gradients overflowed. Clears the gradients.
        """
        ...

    def evaluate(
        self,
        rows: Rows,
        own: np.ndarray,
        most: int,
        counts: StepCounts,
        say: Callable[[str], None],
        turns: int = 0,
    ) -> Sequence[float]:
        """Return this rank's part of the sums of `Objective.evaluate` over the rows of `own`.

        `counts` are those of all `rows`. Raises `HearthError` if they do not fit into memory (see
        `retry_smaller`).
        """
        ...

    def log_probs(
        self,
        rows: Rows,
        own: np.ndarray,
        most: int,
        say: Callable[[str], None],
        mismatched: bool = False,
    ) -> np.ndarray:
        """Return the log-probabilities of the answers in the rows numbered `own`, float64.

        They are in the order of `Rows.pieces_of`; with `mismatched`, those of `Rows.mismatched`.
        Raises `HearthError` as `evaluate` does.
        """
        raise NotImplementedError  # a stage of a pipeline cannot; settings refuse it

    def answer(self, prompt: list[int], most: int, base: bool = False) -> str:
        """Return the greedy continuation of `prompt` by at most `most` tokens, as text.

        With `base`, which a rank that answers alone can do, that of the model without its adapter.
        """
        ...


class Compute(Computing):
    """Forward and backward passes over this rank's rows.

    `clear` sets all gradients to zero; `scale` multiplies a loss by the loss scaler's factor.
    Each micro-batch is announced to `work`.
    """

    def __init__(
        self,
        model: TrainableModel,
        objective: Objective,
        rows: Rows,
        autocast: Callable[[], AbstractContextManager[object]],
        clear: Callable[[], None],
        scale: Callable[[torch.Tensor], torch.Tensor],
        work: Work,
        answers: Literal["alone", "no"] = "alone",
    ) -> None:
        self._model, self._objective, self._rows = model, objective, rows
        self._work, self.answers = work, answers
        self._autocast, self._clear, self._scale = autocast, clear, scale

    def gradients(
        self,
        own: np.ndarray,
        most: int,
        counts: StepCounts,
        seed_of: Callable[[int], int],
        say: Callable[[str], None],
        turns: int = 0,
    ) -> Computed:
        """Add the gradients of the rows numbered `own` to cleared ones.

        After an out-of-memory error all rows are computed again (see `retry_smaller`): nothing has
        been exchanged yet, and the sum does not depend on the micro-batch size. The seed of the
        first row of a micro-batch is that of the adapter's or the model's dropout, and each row's
        that of its own noise.
        """
        started, device = time.perf_counter(), self._model.device

        def attempt(sizes: Sequence[int]) -> tuple[float, Sequence[float]]:
            self._clear()
            self._model.before_step()
            loss = torch.zeros((), dtype=torch.float64, device=device)
            sums = np.zeros(len(self._objective.sums))
            for part, numbers in enumerate(pieces_of(own, sizes)):
                self._work.begin_rows(MICRO_BATCH, part, self._rows.tokens[numbers])
                micro = MicroRows(self._rows, numbers)
                if seeds := [seed_of(int(number)) for number in numbers]:
                    seed_torch(seeds[0], device)
                    self._model.draw_noise(micro.batch, seeds)
                with self._autocast():
                    found = self._objective.loss(self._model, micro, counts)
                self._scale(found.value).backward()
                loss += found.value.detach()
                sums += found.sums
            return loss.item(), sums.tolist()

        (loss, sums), most = retry_smaller(
            attempt, self._rows, own, most, turns, self._model.release, say
        )
        seconds, tokens = time.perf_counter() - started, int(self._rows.tokens[own].sum())
        return Computed(loss, seconds, most, tokens, sums=sums)

    def not_finite(self, own: np.ndarray, counts: StepCounts, turns: int = 0) -> list[int]:
        """Return the rows of `own` with a non-finite gradient (see `Computing.not_finite`)."""
        found: list[int] = []
        for part, row in enumerate(pieces_of(own, micro_batches(len(own), 1, turns))):
            self._work.begin_rows(SEARCH, part, self._rows.tokens[row])
            self._clear()
            with self._autocast():
                found_loss = self._objective.loss(self._model, MicroRows(self._rows, row), counts)
            self._scale(found_loss.value).backward()
            gradients = (parameter.grad for _, parameter in self._model.trainable())
            if not all(bool(each.isfinite().all()) for each in gradients if each is not None):
                found.extend(row.tolist())
        self._clear()
        return found

    @torch.no_grad()
    def evaluate(
        self,
        rows: Rows,
        own: np.ndarray,
        most: int,
        counts: StepCounts,
        say: Callable[[str], None],
        turns: int = 0,
    ) -> Sequence[float]:
        """Return the objective's sums over the rows of `own` (see `Computing.evaluate`)."""

        def attempt(sizes: Sequence[int]) -> Sequence[float]:
            found = []
            for part, numbers in enumerate(pieces_of(own, sizes)):
                self._work.begin_rows(EVALUATION[0], part, rows.tokens[numbers])
                with self._autocast():
                    micro = MicroRows(rows, numbers)
                    found.append(self._objective.evaluate(self._model, micro, counts))
            return [sum(each) for each in zip(*found, strict=True)]

        with self._judging():
            return retry_smaller(attempt, rows, own, most, turns, self._model.release, say)[0]

    @torch.no_grad()
    def log_probs(
        self,
        rows: Rows,
        own: np.ndarray,
        most: int,
        say: Callable[[str], None],
        mismatched: bool = False,
    ) -> np.ndarray:
        """Return the log-probabilities of answers (see `Computing.log_probs`)."""

        def attempt(sizes: Sequence[int]) -> list[float]:
            found: list[float] = []
            for part, numbers in enumerate(pieces_of(own, sizes)):
                self._work.begin_rows(ANSWERS, part, rows.tokens[numbers])
                batch = rows.mismatched(numbers) if mismatched else rows.batch(numbers)
                with self._autocast():
                    found += answers_of(self._model, batch).log_probs.tolist()
            return found

        with self._judging():
            found, _ = retry_smaller(attempt, rows, own, most, 0, self._model.release, say)
        return np.array(found)

    @contextmanager
    def _judging(self) -> Iterator[None]:
        """Switch dropout off for the block."""
        self._model.network.eval()
        try:
            yield
        finally:
            self._model.network.train()

    def answer(self, prompt: list[int], most: int, base: bool = False) -> str:
        """Return the greedy continuation of `prompt` (see `Computing.answer`)."""
        adapter = self._model.network.disable_adapter() if base else nullcontext()
        with self._autocast(), adapter:
            return self._model.generate(prompt, most)
