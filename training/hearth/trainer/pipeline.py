"""A pass of micro-batches through the stages of a model (`parallel: pipeline`).

Each rank computes its own layers. Hidden states go on to the next stage, their gradients come back;
nothing else travels, since every node has the data and knows all rows of a step. A rank computes an
available pass at once: a backward pass if its gradient has arrived, else a forward pass if not too
many micro-batches are under way. With one more under way per stage than 1F1B has, links and unequal
stages cost less time. A stage takes the micro-batches in their order, forward and backward, so the
sums of its gradients have the same bits whatever came first.

`torch.distributed.pipelining` is not used. With 16 micro-batches and stages of 0.33, 0.30 and
0.27 s its 1F1B reached 0.91 of the slowest stage's pace on gloo, and this 0.95. (With equal stages
both reached 0.88, of 16/18 that any order can. A zero-bubble order would put off the gradients of
weights, which frozen ones do not have.) All micro-batches of its pass have one shape, and a rank
that runs out of memory leaves the others waiting; here it goes on with zeros, so that all ranks can
decide together.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from hearth.data.rows import Batch, Rows
from hearth.plan.makespan import in_flight
from hearth.plan.placement import Placement
from hearth.ranks.memory import is_out_of_memory
from hearth.ranks.world import World


@dataclass(frozen=True)
class Series:
    """Tensors of one kind: their source rank, their type, and the shape of each, in order."""

    source: int
    dtype: torch.dtype
    shapes: Sequence[tuple[int, ...]]


class Arrivals:
    """The tensors of several `series` by kind, on the CPU; of each at most `ahead` wait here."""

    def __init__(self, world: World, series: Mapping[str, Series], ahead: int) -> None:
        self._world, self._ahead = world, ahead
        self._arrived: dict[str, deque[torch.Tensor]] = {kind: deque() for kind in series}
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        for kind, each in series.items():
            threading.Thread(
                target=self._receive, args=(kind, each), name=kind, daemon=True
            ).start()

    def take(self, kinds: Sequence[str]) -> tuple[str, torch.Tensor]:
        """Return the kind and the oldest tensor of the first of `kinds` that is here; wait for one.

        Raises the error of a rank that is lost.
        """
        with self._changed:
            while True:
                if self._error:
                    raise self._error
                for kind in kinds:
                    if self._arrived[kind]:
                        self._changed.notify_all()
                        return kind, self._arrived[kind].popleft()
                self._changed.wait()

    def has(self, kind: str) -> bool:
        """Return whether a tensor of this kind is here."""
        with self._changed:
            return bool(self._arrived[kind])

    def _receive(self, kind: str, series: Series) -> None:
        """Receive all tensors of a series, one after the other."""
        arrived = self._arrived[kind]
        try:
            for shape in series.shapes:
                with self._changed:
                    self._changed.wait_for(lambda: len(arrived) < self._ahead)
                buffer = torch.empty(shape, dtype=series.dtype)
                self._world.receive_(buffer, series.source)
                with self._changed:
                    arrived.append(buffer)
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()


HIDDEN, GRADIENT = "hidden states", "gradient"


class StageLayers(Protocol):
    """The layers of one stage, see `hearth.model.stage.StageModel`."""

    device: torch.device
    hidden_size: int
    hidden_dtype: torch.dtype

    def hidden(
        self, batch: Batch, hidden: torch.Tensor | None, seeds: Sequence[int]
    ) -> torch.Tensor:
        """Return the hidden states behind these layers."""

    def stage_loss(
        self, batch: Batch, hidden: torch.Tensor | None, denominator: int, seeds: Sequence[int]
    ) -> torch.Tensor:
        """Return the loss behind the last layers."""

    def next_token(self, batch: Batch, hidden: torch.Tensor | None) -> int:
        """Return the token that follows `batch`, one row, behind the last layers."""


@dataclass(frozen=True)
class MicroBatch:
    """The rows numbered `numbers`, and the seed of each; no seeds where nothing is drawn."""

    rows: Rows
    numbers: np.ndarray
    seeds: Sequence[int] = ()

    def shape(self, width: int) -> tuple[int, int, int]:
        """Return the shape of its hidden states: it is padded to its longest row."""
        return len(self.numbers), int(self.rows.tokens[self.numbers].max()), width


@dataclass(frozen=True)
class Passed:
    """Result of a pass on one rank.

    Attributes:
        loss: on the last stage, the sum of the micro-batches' losses; else 0.
        seconds: of this rank's computing.
        waited: seconds of its waiting for other stages.
        fitted: whether its memory was enough; if not, the gradients mean nothing.
    """

    loss: float
    seconds: float
    waited: float
    fitted: bool


class StagePasses:
    """The passes through the stages of `placement`; all of their ranks make them together.

    `layers` are this rank's. `autocast` and `scale` are as in `Compute`.

    Attributes:
        sent: bytes of hidden states and gradients that this rank has sent so far.
    """

    def __init__(
        self,
        layers: StageLayers,
        placement: Placement,
        world: World,
        autocast: Callable[[], AbstractContextManager[object]],
        scale: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        position = placement.position(world.rank)
        assert position is not None, f"rank {world.rank} has no stage"
        self._layers, self._world, self._autocast = layers, world, autocast
        self._scale, self._position, self._stages = scale, position, len(placement.stages)
        self._previous, self._next = placement.previous(world.rank), placement.next(world.rank)
        self._last, self.sent = placement.ranks[-1], 0

    def train(self, micro_batches: Sequence[MicroBatch], denominator: int) -> Passed:
        """Add the gradients of `micro_batches`, whose loss is divided by `denominator`."""
        return _Pass(self, micro_batches, denominator, backward=True).run()

    @torch.no_grad()
    def evaluate(self, micro_batches: Sequence[MicroBatch]) -> Passed:
        """Compute the summed loss of all tokens of `micro_batches`."""
        return _Pass(self, micro_batches, 1, backward=False).run()

    @torch.no_grad()
    def next_token(self, batch: Batch) -> int:
        """Return the most likely token behind `batch`, one row, on every rank."""
        layers, hidden, token = self._layers, None, None
        if self._previous is not None:
            shape = (*batch.input_ids.shape, layers.hidden_size)
            hidden = torch.empty(shape, dtype=layers.hidden_dtype)
            self._world.receive_(hidden, self._previous)
            hidden = hidden.to(layers.device)
        with self._autocast():
            if self._next is None:
                token = layers.next_token(batch, hidden)
            else:
                hidden = layers.hidden(batch, hidden, ())
                travels = hidden.to("cpu", layers.hidden_dtype).contiguous()
                self._world.send(travels, self._next).wait()
        return self._world.from_rank(self._last, token)


class _Pass:
    """One pass, in training forward and backward, else forward only."""

    def __init__(
        self, of: StagePasses, micro_batches: Sequence[MicroBatch], denominator: int, backward: bool
    ) -> None:
        self._of, self._micro_batches, self._denominator = of, micro_batches, denominator
        self._backward, self._count = backward, len(micro_batches)
        self._most = in_flight(self._count, of._position, of._stages)
        layers = of._layers
        self._shapes = [each.shape(layers.hidden_size) for each in micro_batches]
        dtype, series = layers.hidden_dtype, {}
        if of._previous is not None:
            series[HIDDEN] = Series(of._previous, dtype, self._shapes)
        if of._next is not None and backward:
            series[GRADIENT] = Series(of._next, dtype, self._shapes)
        self._arrivals = Arrivals(of._world, series, self._most)
        # By target, of micro-batches in their order, and the number of those no longer kept.
        self._sent: dict[int, deque[tuple[Any, torch.Tensor]]] = {}
        self._freed: dict[int, int] = {}
        # Entering and leaving hidden states of the micro-batches that are still to go backward.
        self._under_way: deque[tuple[torch.Tensor | None, torch.Tensor | None]] = deque()
        self._loss = torch.zeros((), dtype=torch.float64, device=layers.device)
        self._seconds = 0.0
        self._fitted = True

    def run(self) -> Passed:
        """Compute all micro-batches on this rank; raise the error of a rank that is lost."""
        started = time.perf_counter()
        forward = backward = 0
        while forward < self._count or (self._backward and backward < self._count):
            kind, arrived = self._take(forward, backward)
            began = time.perf_counter()
            if kind == HIDDEN:
                self._go_forward(forward, arrived)
                forward += 1
            else:
                self._go_backward(backward, arrived)
                backward += 1
            self._seconds += time.perf_counter() - began
        self._finish_kernels()
        for sent in self._sent.values():
            for work, _ in sent:
                work.wait()
        loss = self._loss.item()
        waited = time.perf_counter() - started - self._seconds
        return Passed(loss, self._seconds, waited, self._fitted)

    def _take(self, forward: int, backward: int) -> tuple[str, torch.Tensor | None]:
        """Return the kind of the next pass, and the tensor of another stage that it needs.

        Wait until one can begin.
        """
        begins = forward < self._count and (not self._backward or forward - backward < self._most)
        ends = self._backward and backward < forward
        if ends and (self._of._next is None or self._arrivals.has(GRADIENT)):
            return GRADIENT, None if self._of._next is None else self._arrivals.take([GRADIENT])[1]
        if begins and self._of._previous is None:
            return HIDDEN, None
        self._finish_kernels()
        return self._arrivals.take([GRADIENT] * ends + [HIDDEN] * begins)

    def _finish_kernels(self) -> None:
        """Wait for what a GPU still computes, which is this rank's own work, not waiting."""
        if self._loss.is_cuda:
            began = time.perf_counter()
            torch.cuda.synchronize(self._loss.device)
            self._seconds += time.perf_counter() - began

    def _go_forward(self, number: int, arrived: torch.Tensor | None) -> None:
        """Compute the forward pass of a micro-batch from the hidden states that `arrived`."""
        if self._backward and self._of._previous is not None:
            # The stage before sends it once it has taken all gradients but those under way there.
            most = in_flight(self._count, self._of._position - 1, self._of._stages)
            self._free(self._of._previous, number - most + 1)
        states = self._try(lambda: self._forward(self._micro_batches[number], arrived))
        entering, leaving = states or (None, None)
        if self._backward:
            self._under_way.append((entering, leaving))
        if self._of._next is not None:
            self._send(self._of._next, leaving, number)

    def _forward(
        self, micro_batch: MicroBatch, arrived: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return the hidden states that enter and leave this stage; the loss leaves the last."""
        of, entering = self._of, arrived
        if entering is not None:
            entering = entering.to(of._layers.device).requires_grad_(self._backward)
        batch, seeds = micro_batch.rows.batch(micro_batch.numbers), micro_batch.seeds
        with of._autocast():
            if of._next is not None:
                return entering, of._layers.hidden(batch, entering, seeds)
            loss = of._layers.stage_loss(batch, entering, self._denominator, seeds)
        self._loss += loss.detach()
        return entering, of._scale(loss)

    def _go_backward(self, number: int, arrived: torch.Tensor | None) -> None:
        """Compute the backward pass of a micro-batch from the gradient that `arrived`."""
        if self._of._next is not None:
            self._free(self._of._next, number + 1)  # Its gradient is of what had arrived there.
        entering, leaving = self._under_way.popleft()
        if leaving is not None and leaving.requires_grad:
            self._try(
                lambda: torch.autograd.backward(
                    leaving, None if arrived is None else arrived.to(leaving)
                )
            )
        if self._of._previous is not None:
            gradient = None if entering is None else entering.grad
            self._send(self._of._previous, gradient, number)

    def _try(self, compute: Callable[[], Any]) -> Any:
        """Call `compute` and return its result; None once the memory has run out in this pass."""
        if not self._fitted:
            return None
        try:
            return compute()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        self._fitted = False
        # Free what is under way: from now on only zeros are sent.
        self._under_way = deque((None, None) for _ in self._under_way)
        return None

    def _send(self, target: int, states: torch.Tensor | None, number: int) -> None:
        """Begin to send hidden states or a gradient of a micro-batch, zeros if none are there."""
        dtype = self._of._layers.hidden_dtype
        if states is None or not self._fitted:
            travels = torch.zeros(self._shapes[number], dtype=dtype)
        else:
            travels = states.detach().to("cpu", dtype).contiguous()
        sent = self._sent.setdefault(target, deque())
        sent.append((self._of._world.send(travels, target), travels))
        self._of.sent += travels.numel() * travels.element_size()
        if not self._backward and len(sent) > self._most:
            self._free(target, number - self._most + 1)  # Nothing comes back.

    def _free(self, target: int, end: int) -> None:
        """Free the tensors sent to `target` for micro-batches before `end`.

        Gloo cannot tell whether a tensor has been sent, so this is called once it must have been,
        where waiting takes no time, or to wait for it. A wait for a lost rank notices the loss.
        """
        while self._freed.get(target, 0) < end:
            self._sent[target].popleft()[0].wait()
            self._freed[target] = self._freed.get(target, 0) + 1
