"""Averaging after local steps, compared with values computed by hand."""

from __future__ import annotations

import pytest
import torch
from support import several
from support.facts import refuses

from hearth.base.errors import ConfigError
from hearth.config import Settings
from hearth.fit.estimate import OF_ROUNDS
from hearth.model.optimizer import Means
from hearth.node.probe import reserve
from hearth.plan.prediction import EXCHANGED
from hearth.trainer import assembly, rounds
from hearth.trainer.exchange import Exchange
from hearth.trainer.rounds import OUTER_MOMENTUM, OUTER_RATE, PARTS, Local, Rounds, norm_of_all

FLAGS = {"stop": False, "keep": False, "pause": False}
START = [[1.0, -2.0], [0.5]]


class Rank:
    """One rank between two synchronisations; its learning is set by hand."""

    def __init__(self, world):
        self.parameters = [
            torch.nn.Parameter(torch.tensor(each, dtype=torch.float64)) for each in START
        ]
        self.exchange = Exchange(self.parameters, world, parts=PARTS)
        self.optimizer = torch.optim.AdamW(self.parameters, 1e-2)
        self.rounds = Rounds(self.parameters, self.optimizer, self.exchange)

    def round(self, moved, labels, of_all, taken=1):
        """Move every number by `moved`, with moments `moved` and `moved` squared."""
        self.rounds.begin()
        with torch.no_grad():
            for parameter in self.parameters:
                parameter += moved
                state = self.optimizer.state[parameter]
                state["exp_avg"].fill_(moved)
                state["exp_avg_sq"].fill_(moved**2)
                state["step"] += taken
        local = Local(labels=labels, of_all=of_all, taken=taken, norms=moved * taken)
        summed = self.rounds.propose(local, FLAGS)
        self.rounds.commit(local, summed)
        return summed

    def numbers(self):
        return torch.cat([parameter.detach().flatten() for parameter in self.parameters])

    def state(self, name):
        return [self.optimizer.state[parameter][name] for parameter in self.parameters]


def on_ranks(*work):
    """Run each of `work`, a function of a rank, in a rank of its own; return the ranks."""

    def act(world):
        rank = Rank(world)
        work[world.rank](rank)
        return rank

    return several.on_ranks(len(work), act)


def start():
    return torch.tensor([number for part in START for number in part], dtype=torch.float64)


def test_two_rounds_go_where_nesterov_goes_with_the_average_by_label_tokens():
    def one(rank):
        rank.round(0.1, 30, 40)
        rank.round(-0.2, 10, 40)

    def other(rank):
        rank.round(0.3, 10, 40)
        rank.round(0.4, 30, 40)

    first, second = 0.75 * 0.1 + 0.25 * 0.3, 0.25 * -0.2 + 0.75 * 0.4
    velocity = first
    expected = start() + OUTER_RATE * (first + OUTER_MOMENTUM * velocity)
    velocity = OUTER_MOMENTUM * velocity + second
    expected += OUTER_RATE * (second + OUTER_MOMENTUM * velocity)
    for rank in on_ranks(one, other):
        assert torch.allclose(rank.numbers(), expected, rtol=1e-12)
        for average in rank.state("exp_avg"):
            assert torch.allclose(average, torch.full_like(average, second), rtol=1e-12)
        for square in rank.state("exp_avg_sq"):
            wanted = 0.25 * 0.2**2 + 0.75 * 0.4**2
            assert torch.allclose(square, torch.full_like(square, wanted), rtol=1e-12)


def test_a_rank_that_learned_nothing_has_no_say_and_takes_over_what_the_others_did():
    def busy(rank):
        rank.round(0.2, 16, 20, taken=3)

    def idle(rank):
        rank.round(0.0, 0, 20, taken=0)

    worked, waited = on_ranks(busy, idle)
    assert torch.equal(worked.numbers(), waited.numbers())
    # Part of the planned label tokens was learned by nobody; the weights still add up to one.
    wanted = start() + OUTER_RATE * (1 + OUTER_MOMENTUM) * 0.2
    assert torch.allclose(waited.numbers(), wanted, rtol=1e-12)
    for name in ("step", "exp_avg", "exp_avg_sq"):
        assert all(map(torch.equal, worked.state(name), waited.state(name)))
    assert [step.item() for step in waited.state("step")] == [3, 3]


def test_where_nobody_learned_anything_nothing_moves():
    def learns(rank):
        rank.round(0.1, 10, 20)

    def does_not(rank):
        rank.round(0.0, 0, 20, taken=0)

    once = on_ranks(learns, learns)[0]
    twice = on_ranks(*[lambda rank: (learns(rank), does_not(rank))] * 2)[0]
    assert torch.equal(once.numbers(), twice.numbers())
    momentum = [each.rounds.outer.state_dict()["state"] for each in (once, twice)]
    assert torch.equal(momentum[0][0]["momentum_buffer"], momentum[1][0]["momentum_buffer"])


def test_the_norm_that_is_recorded_is_the_mean_by_label_tokens():
    sums = []
    on_ranks(
        lambda rank: sums.append(rank.round(0.4, 30, 40, taken=2)),
        lambda rank: sums.append(rank.round(0.8, 10, 40, taken=2)),
    )
    assert norm_of_all(sums[0]) == norm_of_all(sums[1]) == pytest.approx(0.5)


def test_its_state_is_laid_out_without_a_step():
    rank = on_ranks(lambda rank: None)[0]
    assert torch.equal(rank.numbers(), start())
    assert [step.item() for step in rank.state("step")] == [0, 0]
    assert [group["lr"] for group in rank.optimizer.param_groups] == [1e-2]


def test_what_rounds_take_besides_is_what_is_estimated_and_reserved():
    rank, _ = on_ranks(*[lambda rank: rank.round(0.1, 1, 2)] * 2)
    learned, state = len(start()), rank.rounds.outer.state_dict()["state"]
    kept = [rank.rounds._begun, *(each["momentum_buffer"] for each in state.values())]
    further = sum(part.numel() for part in (*rank.exchange.parts[1:], *kept))
    assert (PARTS, further) == (EXCHANGED, OF_ROUNDS * learned)
    room = [sum(each.numel() for each in reserve(rank.parameters, on)) for on in (False, True)]
    assert room == [2 * learned, 2 * learned + further]  # AdamW's own moments are the first two


def test_a_scaled_loss_is_refused_with_the_way_out():
    with refuses(ConfigError, "sync_every", "fp16", "precision=fp32"):
        rounds.check("fp16")
    rounds.check("bf16")


@pytest.mark.parametrize(("steps", "chosen"), [(1, "adamw_8bit"), (2, "adamw")])
def test_state_that_is_averaged_is_not_kept_in_eight_bits(monkeypatch, steps, chosen):
    card = Means("tower", gpu=True, bitsandbytes=True)  # stands in for a machine that has one
    monkeypatch.setattr(assembly, "means_here", lambda *_: card)
    settings = Settings(model="tiny", sync_every=steps)
    (choices,) = several.on_ranks(1, lambda world: assembly.choose(settings, world, {}))
    assert choices.optimizer == chosen
