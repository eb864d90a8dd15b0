"""The optimizer step: clipped in parts, and undone where a rank is lost."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from support.several import on_ranks

from hearth.model.optimizer import Muon
from hearth.ranks.world import World
from hearth.trainer.exchange import Exchange
from hearth.trainer.optimizer_step import Learner
from hearth.trainer.rounds import PARTS, Local, Rounds

RUN_SETTINGS = SimpleNamespace(clip_norm=1.0, warmup_steps=0, schedule="constant")
SHAPES = ((4, 6), (5,), (3, 2), (7,))


def learners(scale, *cuts):
    """Return the learners of these parts of all parameters."""
    torch.manual_seed(0)
    every = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in SHAPES]
    made = []
    for part in (every[slice(*cut)] for cut in cuts):
        scaler = torch.amp.GradScaler("cpu", scale or 1.0, enabled=scale is not None)
        optimizer = torch.optim.AdamW(part, 0.1)
        made.append((part, Learner(optimizer, RUN_SETTINGS, part, scaler, 10), scaler))
    return every, made


def step(scale, cuts, bad=None):
    """Take a step; return the norm of each part's learner, all parameters, and the scales."""
    every, parts = learners(scale, *cuts)
    torch.manual_seed(1)
    for number, parameter in enumerate(every):
        parameter.grad = torch.randn_like(parameter) * (scale or 1.0)
        if number == bad:
            parameter.grad[0] = math.inf
    squares = [sum(float(each.grad.square().sum()) for each in part) for part, *_ in parts]
    whole = sum(squares) if len(parts) > 1 else None
    norms = [learner.propose((1,), whole) for _, learner, _ in parts]
    for _, learner, _ in parts:
        learner.commit()
    return norms, [each.detach() for each in every], [scaler.get_scale() for *_, scaler in parts]


@pytest.mark.parametrize("scale", [None, 1024.0])
def test_parts_are_clipped_by_the_norm_of_the_whole(scale):
    (norm,), expected, _ = step(scale, [(0, 4)])
    norms, found, _ = step(scale, [(0, 1), (1, 3), (3, 4)])
    assert norm > RUN_SETTINGS.clip_norm
    assert norms == pytest.approx([norm] * 3, rel=1e-12)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("scale", [None, 1024.0])
@pytest.mark.parametrize("bad", [0, 2, 3])
def test_what_is_not_finite_in_one_part_is_skipped_by_all(scale, bad):
    before = [each.detach().clone() for each in learners(scale, (0, 4))[0]]
    norms, found, scales = step(scale, [(0, 2), (2, 4)], bad)
    assert norms == [math.inf] * 2
    assert scales == [scale / 2 if scale else 1.0] * 2
    torch.testing.assert_close(found, before, rtol=0, atol=0)


FLAGS = {"stop": False, "keep": False, "pause": False}
SETTINGS = SimpleNamespace(clip_norm=1.0, warmup_steps=2, schedule="cosine")


def adamw(matrix, other):
    return torch.optim.AdamW([matrix, other], 0.1)


def muon(matrix, other):
    return Muon([matrix], torch.optim.AdamW([other], 0.1), 0, lambda updates: None)


class Rank:
    """The parameters and the optimizer of one rank; its gradients are drawn from a seed."""

    def __init__(self, optimizer, scale=None):
        torch.manual_seed(0)
        self.parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in ((4, 6), (5,))]
        self.scaler = torch.amp.GradScaler("cpu", scale or 1.0, enabled=scale is not None)
        optimizer = optimizer(*self.parameters)
        self.learner = Learner(optimizer, SETTINGS, self.parameters, self.scaler, 10)

    def compute(self, seed):
        torch.manual_seed(seed)
        for parameter in self.parameters:
            parameter.grad = self.scaler.scale(torch.randn_like(parameter))

    def propose(self, seed):
        self.compute(seed)
        return self.learner.propose((1,))

    def step(self, seed):
        self.propose(seed)
        self.learner.commit()
        self.learner.advance_schedule()

    def state(self):
        parts = {name: part.state_dict() for name, part in self.learner.changing.items()}
        return copy.deepcopy((parts, [parameter.detach() for parameter in self.parameters]))


def assert_equal(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("optimizer", [adamw, muon])
@pytest.mark.parametrize("scale", [None, 8.0, 2.0**127])
def test_an_optimizer_step_is_proposed_committed_or_undone(optimizer, scale):
    rank, other = Rank(optimizer, scale), Rank(optimizer, scale)
    for each in (rank, other):
        each.step(1)
    before = rank.state()
    rank.propose(2)
    assert_equal(rank.state(), before)
    rank.learner.abandon()
    assert_equal(rank.state(), before)
    rank.learner.abandon()  # of nothing
    rank.compute(3)  # interrupted before a proposal
    rank.learner.abandon()
    for each in (rank, other):
        each.step(2)
        each.step(3)
    assert_equal(rank.state(), other.state())


class RoundsRank:
    """One rank in rounds of local steps."""

    def __init__(self, world):
        torch.manual_seed(0)
        self.parameters = [torch.nn.Parameter(torch.randn(3)) for _ in range(2)]
        exchange = Exchange(self.parameters, world, parts=PARTS)
        self.optimizer = torch.optim.AdamW(self.parameters, 0.1)
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        self.learner = Learner(self.optimizer, SETTINGS, self.parameters, scaler, 20)
        self.rounds = Rounds(self.parameters, self.optimizer, exchange, undoable=True)

    def local_steps(self, seed):
        self.rounds.begin()
        self.learner.mark()
        torch.manual_seed(seed)
        for _ in range(3):
            for parameter in self.parameters:
                parameter.grad.copy_(torch.randn_like(parameter))
            self.learner.propose((1,))
            self.learner.commit()
            self.learner.advance_schedule()

    def propose(self, seed):
        self.local_steps(seed)
        local = Local(labels=3, of_all=3, taken=3)
        return local, self.rounds.propose(local, FLAGS)

    def round(self, seed):
        self.rounds.commit(*self.propose(seed))

    def undo(self):
        self.rounds.undo()
        self.learner.rewind()

    def state(self):
        parts = {name: part.state_dict() for name, part in self.learner.changing.items()}
        parts["outer"] = self.rounds.outer.state_dict()
        return copy.deepcopy((parts, [parameter.detach() for parameter in self.parameters]))


def test_a_round_is_undone_with_its_moments_and_its_place_in_the_schedule():
    rank, other = RoundsRank(World()), RoundsRank(World())
    for each in (rank, other):
        each.round(1)
    before = rank.state()
    for interrupted in (rank.local_steps, rank.propose):
        interrupted(2)
        rank.undo()
        assert_equal(rank.state(), before)
    for each in (rank, other):
        each.round(3)
    assert_equal(rank.state(), other.state())


def test_a_sum_is_not_spoiled_by_the_one_that_was_interrupted():
    def rank(world):
        parameter = torch.nn.Parameter(torch.zeros(4))
        exchange = Exchange([parameter], world)
        exchange.parts[0].fill_(float("nan"))
        exchange.run(FLAGS, tokens=9)
        exchange.clear()
        parameter.grad += world.rank + 1
        summed = exchange.run(FLAGS | {"pause": world.rank == 1}, tokens=world.rank)
        return parameter.grad.tolist(), summed.tokens, summed.pause, summed.stop

    assert on_ranks(2, rank) == [([3.0] * 4, [0, 1], True, False)] * 2
