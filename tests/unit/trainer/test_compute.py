"""A rank whose memory is too small for a micro-batch takes smaller ones, to the same end."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from support.facts import assert_names, refuses
from support.ranks import python, succeeded

from hearth.base.errors import HearthError
from hearth.node.probe import probe
from hearth.ranks.world import World
from hearth.trainer.compute import Compute
from hearth.trainer.objective import NextToken, StepCounts
from hearth.trainer.work import Work


class SmallMemory:
    """A stand-in for a model on a card that holds `room` rows; `fails` is its error."""

    def __init__(self, holds: int, fails: BaseException) -> None:
        self.network = torch.nn.Linear(4, 1, bias=False, dtype=torch.float64)
        self.device = torch.device("cpu")
        self.holds, self.fails, self.seen = holds, fails, []

    def before_step(self) -> None:
        pass

    def draw_noise(self, batch: torch.Tensor, seeds: list[int]) -> None:
        pass

    def release(self) -> None:
        pass

    def trainable(self):
        return self.network.named_parameters()

    def loss(self, batch: torch.Tensor, denominator: int) -> torch.Tensor:
        self.seen.append(len(batch))
        loss = self.network(batch).square().sum() / denominator
        if len(batch) > self.holds:
            loss.backward()  # it gives up with a part of the gradients written
            raise self.fails
        return loss


class SomeRows:
    """A stand-in for packed rows: the row's number is its content."""

    tokens = np.full(64, 4)
    label_tokens = np.full(64, 4)

    def batch(self, numbers: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(np.asarray(numbers, dtype=float))[:, None] * torch.ones(
            4, dtype=float
        )


def computed(model, most, say=print, turns=0, rows=range(1, 12)):
    torch.nn.init.ones_(model.network.weight)
    zero = partial(model.network.zero_grad, set_to_none=False)
    scale, work = lambda loss: loss, Work(World())
    compute = Compute(model, NextToken(), SomeRows(), nullcontext, zero, scale, work)
    result = compute.gradients(np.array(rows, int), most, StepCounts(100), int, say, turns)
    return result, model.network.weight.grad.clone()


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    MemoryError(),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"),
]


@pytest.mark.parametrize("error", ERRORS, ids=["card", "numpy", "computer"])
def test_what_does_not_fit_is_computed_anew_in_smaller_pieces(error):
    roomy, expected = computed(SmallMemory(99, error), 11)
    said = []
    small, found = computed(SmallMemory(3, error), 11, said.append)
    assert torch.equal(found.round(decimals=9), expected.round(decimals=9))
    assert small.loss == pytest.approx(roomy.loss, rel=1e-12)
    assert (roomy.micro_batch, small.micro_batch) == (11, 2)
    # Eleven rows in pieces of at most five are 4 + 4 + 3.
    for line, facts in zip(said, (("11 rows", "with 5"), ("4 rows", "with 2")), strict=True):
        assert_names(line, *facts)


def test_a_single_row_that_does_not_fit_ends_the_run_with_advice():
    with refuses(HearthError, "one row", "4 tokens", "sequence_length"):
        computed(SmallMemory(0, MemoryError()), 4)


def test_ranks_that_compute_together_take_as_many_turns_and_blank_ones_change_nothing():
    alone, expected = computed(SmallMemory(99, MemoryError()), 4)
    together, found = computed(model := SmallMemory(99, MemoryError()), 4, turns=15)
    assert model.seen == [1] * 11 + [0] * 4
    assert torch.equal(found.round(decimals=9), expected.round(decimals=9))
    assert together.loss == pytest.approx(alone.loss, rel=1e-12)


@pytest.mark.parametrize(
    ("holds", "facts"),
    [
        (3, ["4 rows", "parallel=fsdp", "resume", "micro_batch=2"]),
        (0, ["1 row", "parallel=fsdp", "gradient_checkpointing=on"]),
    ],
)
def test_a_rank_that_computes_with_the_others_cannot_try_again_alone(holds, facts):
    model = SmallMemory(holds, MemoryError())
    with refuses(HearthError, *facts):
        computed(model, 4 if holds else 1, turns=3)
    assert len(model.seen) == 1


def test_another_error_is_not_taken_for_a_lack_of_memory():
    with refuses(RuntimeError, "shapes differ"):
        computed(SmallMemory(1, RuntimeError("shapes differ")), 4)


def test_a_rank_without_rows_has_no_loss_and_no_gradient():
    model = SmallMemory(9, MemoryError())
    model.network.weight.grad = torch.ones(1, 4, dtype=torch.float64)
    result, gradient = computed(model, 4, rows=[])
    assert result.loss == 0
    assert not gradient.any()
    assert model.seen == []


def test_the_probe_ends_where_the_memory_does():
    measured = probe(SmallMemory(4, MemoryError()), SomeRows(), 64, nullcontext, lambda loss: loss)
    assert measured.saturated
    assert set(measured.speed.sizes) <= {1, 2, 4}
    with refuses(HearthError, "one row", "4 tokens"):
        probe(SmallMemory(0, MemoryError()), SomeRows(), 64, nullcontext, lambda loss: loss)


def test_the_probe_tries_nothing_larger_than_it_is_told():
    model = SmallMemory(99, MemoryError())
    measured = probe(model, SomeRows(), 5, nullcontext, lambda loss: loss)
    assert max(model.seen) <= 4
    assert measured.row_tokens == 4
    assert measured.exchange_bytes == 4 * 8
    # The first call with one row is not counted, nor that with several: it may compile.
    assert [model.seen.count(size) for size in (1, 2)] == [4, 4]


def test_a_process_with_a_limit_gets_an_error_that_is_known_for_what_it_is(tmp_path):
    # In a process of its own: the limit stays for its life.
    script = (
        "import torch\nfrom hearth.ranks.memory import is_out_of_memory, limit_memory\n"
        "limit_memory(2)\n"
        "torch.ones(1 << 26)\n"
        "try:\n    torch.ones(1 << 30)\n"
        "except Exception as error:\n    print(is_out_of_memory(error))\n"
        "torch.ones(1 << 26)\n"
    )
    assert succeeded(python(tmp_path, "-c", script)).stdout.strip() == "True"
