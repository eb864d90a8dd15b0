"""A pass through stages: the gradients of one model, in any order of events, and without memory."""

from __future__ import annotations

import queue
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hearth.data.rows import Batch
from hearth.plan.placement import Placement
from hearth.trainer.pipeline import MicroBatch, StagePasses

WIDTH, TOKENS = 4, 16


class Wires:
    """A stand-in of the process group between ranks that are threads: nothing arrives unordered."""

    def __init__(self) -> None:
        self._queues = {}
        self._lock = threading.Lock()

    def queue(self, source, target):
        with self._lock:
            return self._queues.setdefault((source, target), queue.Queue())

    def world(self, rank):
        def receive_(buffer, source):
            got = self.queue(source, rank).get(timeout=30)
            if isinstance(got, Exception):
                raise got
            assert got.shape == buffer.shape
            assert got.dtype == buffer.dtype
            buffer.copy_(got)

        def send(buffer, target):
            self.queue(rank, target).put(buffer.clone())
            return SimpleNamespace(wait=lambda: None)

        return SimpleNamespace(rank=rank, send=send, receive_=receive_)


class Layers(torch.nn.Module):
    """A stand-in of a stage: embeds, multiplies and computes a loss, and may be slow."""

    device, hidden_size, hidden_dtype = torch.device("cpu"), WIDTH, torch.float64

    def __init__(self, layers, first, last, pauses=(0.0,), fails_at=None):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(TOKENS, WIDTH, dtype=torch.float64).requires_grad_(False)
        every = [torch.nn.Linear(WIDTH, WIDTH, dtype=torch.float64) for _ in range(6)]
        self.own = torch.nn.ModuleList(every[number] for number in layers)
        self.first, self.last = first, last
        self._pauses, self._fails_at, self._passes = list(pauses), fails_at, 0

    def hidden(self, batch, hidden, seeds):
        self._passes += 1
        if self._passes == self._fails_at:
            raise torch.OutOfMemoryError("CUDA out of memory")
        time.sleep(self._pauses[self._passes % len(self._pauses)])
        if hidden is None:
            hidden = self.embed(torch.as_tensor(batch.input_ids))
        for layer in self.own:
            hidden = torch.tanh(layer(hidden)) * (1 + sum(seeds))
        return hidden

    def stage_loss(self, batch, hidden, denominator, seeds):
        return self.hidden(batch, hidden, seeds).square().sum() / denominator


def micro_batches(shapes):
    """Return micro-batches of so many rows, all of them of so many tokens, drawn at random."""
    random, first, made = np.random.default_rng(0), 0, []
    tokens = np.repeat([length for _, length in shapes], [count for count, _ in shapes])
    ids = {number: random.integers(0, TOKENS, length) for number, length in enumerate(tokens)}

    def batch(numbers):
        found = np.stack([ids[number] for number in numbers])
        return Batch(found, found, found, [found.size])

    for count, _ in shapes:
        rows = SimpleNamespace(tokens=tokens, batch=batch)
        made.append(MicroBatch(rows, np.arange(first, first + count), [first]))
        first += count
    return made


def passed(counts, shapes, train=True, order=None, **failing):
    """Pass micro-batches through stages of so many layers each; return stages and results."""
    placement = Placement.of(order or range(len(counts)), counts)
    wires, found, last = Wires(), {}, len(counts) - 1
    stages = [
        Layers(
            stage.layers,
            position == 0,
            position == last,
            failing.get("pauses", [(0.0,)] * 6)[position],
            failing.get("fails_at") if position == failing.get("failing") else None,
        )
        for position, stage in enumerate(placement.stages)
    ]

    def run(position):
        world = wires.world(placement.ranks[position])
        pipeline = StagePasses(stages[position], placement, world, nullcontext, lambda loss: loss)
        batches = micro_batches(shapes)
        done = pipeline.train(batches, 7) if train else pipeline.evaluate(batches)
        found[position] = done

    threads = [threading.Thread(target=run, args=(position,)) for position in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == len(counts)
    return stages, [found[position] for position in range(len(counts))]


def gradients(stages):
    return [each.grad for stage in stages for each in stage.own.parameters()]


SHAPES = [(2, 3), (1, 5), (2, 1), (1, 1), (3, 2)]
PAUSES = st.lists(st.sampled_from([0.0, 0.001, 0.004]), min_size=1, max_size=4)


@settings(max_examples=15, deadline=None)
@given(
    cut=st.sampled_from([(4, 2), (2, 4), (3, 2, 1), (1, 4, 1), (2, 1, 1, 2)]),
    count=st.integers(1, 5),
    pauses=st.lists(PAUSES, min_size=4, max_size=4),
    backwards=st.booleans(),
)
def test_any_stages_give_the_gradients_of_one(cut, count, pauses, backwards):
    (whole,), (alone,) = passed((6,), SHAPES[:count])
    order = range(len(cut))[::-1] if backwards else range(len(cut))
    stages, results = passed(cut, SHAPES[:count], order=list(order), pauses=pauses)
    assert sum(each.loss for each in results) == pytest.approx(alone.loss, rel=1e-12)
    for found, expected in zip(gradients(stages), gradients([whole]), strict=True):
        assert torch.equal(found, expected)  # added in the same order, so bit for bit


def test_an_evaluation_goes_forward_only():
    (_,), (alone,) = passed((6,), SHAPES, train=False)
    stages, results = passed((3, 2, 1), SHAPES, train=False)
    assert [each.loss for each in results] == [0, 0, pytest.approx(alone.loss)]
    assert set(gradients(stages)) == {None}


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("fails_at", [1, 3, 5])
def test_a_stage_without_memory_lets_the_others_come_to_the_end(failing, fails_at):
    _, results = passed((3, 2, 1), SHAPES, failing=failing, fails_at=fails_at)
    assert [each.fitted for each in results] == [each != failing for each in range(3)]


def test_a_lost_stage_ends_the_pass_of_its_neighbours():
    placement, wires = Placement.of((0, 1), (3, 3)), Wires()
    wires.queue(1, 0).put(RuntimeError("Connection closed by peer"))
    layers = Layers(range(3), True, False)
    pipeline = StagePasses(layers, placement, wires.world(0), nullcontext, lambda loss: loss)
    with pytest.raises(RuntimeError, match="closed by peer"):
        pipeline.train(micro_batches(SHAPES), 7)
