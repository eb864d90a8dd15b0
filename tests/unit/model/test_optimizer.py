"""The learning rate over the steps of a run, and Muon."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.ranks import loaded
from support.tiny_model import make_model
from transformers import GPT2Config

from hearth.config import Settings
from hearth.model.optimizer import Muon, divide, make_schedule, orthogonal


def rates(steps, **settings):
    """Return the learning rate of each step, relative to the peak."""
    chosen = Settings(model="tiny", schedule="wsd", **settings)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 1.0)
    schedule = make_schedule(chosen, optimizer, steps)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return [*found, optimizer.param_groups[0]["lr"]]


@pytest.mark.parametrize(
    ("steps", "warmup", "fraction", "stable", "decay"),
    [(20, 5, 0.2, 11, 4), (20, 0, 0.5, 10, 10), (20, 5, 1.0, 0, 15), (4, 10, 0.2, 0, 0)],
)
def test_wsd_rises_stays_and_falls_to_zero(steps, warmup, fraction, stable, decay):
    found = rates(steps, warmup_steps=warmup, decay_fraction=fraction)
    start = min(warmup, steps)
    assert found[:start] == pytest.approx([(step + 1) / (start + 1) for step in range(start)])
    assert found[start : start + stable] == [1.0] * stable
    assert found[start + stable :] == pytest.approx(
        [1 - (step / max(decay, 1)) ** 0.5 for step in range(decay)] + [0.0]
    )


def test_more_steps_only_prolong_the_stable_phase_of_wsd():
    """So a run stopped before its decay goes on as if it had been longer from the beginning."""
    short, long = rates(20, warmup_steps=5), rates(200, warmup_steps=5)
    assert short[:16] == long[:16]


def after_steps(make, shape, steps=3):
    """Return a random parameter after steps of `make(parameter)` with random gradients."""
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(shape))
    optimizer = make(parameter)
    for _ in range(steps):
        parameter.grad = torch.randn(shape)
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("shape", [(8, 24), (24, 8)])
def test_muon_takes_the_steps_of_torch_which_orthogonalises_in_bf16(shape):
    rate, decay = 0.1, 0.3
    other = torch.nn.Parameter(torch.zeros(1))
    adamw = torch.optim.AdamW([other], rate, weight_decay=decay)
    found = after_steps(lambda p: Muon([p], adamw, 0, lambda update: None), shape)
    expected = after_steps(
        lambda p: torch.optim.Muon([p], rate, decay, adjust_lr_fn="match_rms_adamw"), shape
    )
    begun = after_steps(lambda p: None, shape, steps=0)
    assert (found - expected).norm() < 0.01 * (found - begun).norm()


def test_an_update_of_muon_is_about_as_large_as_one_of_adamw():
    update = orthogonal(torch.randn(64, 256)) * 0.2 * 256**0.5
    assert update.pow(2).mean().sqrt() == pytest.approx(0.2, abs=0.05)


def test_the_rest_learns_by_adamw_and_the_state_takes_no_more_than_two_of_a_weight():
    torch.manual_seed(0)
    one, other = (torch.nn.Parameter(torch.ones(7)) for _ in range(2))
    matrix = torch.nn.Parameter(torch.randn(4, 4))
    own, adamw = (torch.optim.AdamW([each], 0.1, weight_decay=0.3) for each in (one, other))
    muon = Muon([matrix], own, 0, lambda update: None)
    one.grad = other.grad = torch.randn(7)
    matrix.grad = torch.randn(4, 4)
    for optimizer in (muon, adamw):
        optimizer.step()
    assert torch.equal(one, other)
    held = sum(value.numel() for value in muon.state[matrix].values()) * 4
    assert held + muon.bytes <= 2 * matrix.numel() * 4


@pytest.mark.parametrize(
    ("more", "hidden"),
    [
        (
            {},
            {
                *("q_proj", "k_proj", "v_proj", "o_proj"),
                *("gate_proj", "up_proj", "down_proj"),
            },
        ),
        (
            {"family": GPT2Config, "n_embd": 32, "n_layer": 2, "n_head": 4},
            {"c_attn", "c_proj", "c_fc"},
        ),
    ],
    ids=["Llama", "GPT-2"],
)
def test_muon_gets_the_hidden_matrices_and_neither_embeddings_nor_head(tmp_path, more, hidden):
    model = loaded(make_model(tmp_path / "model", **more), lora="off")
    chosen = {id(matrix) for matrix in model.hidden_matrices()}
    names = {
        name.removesuffix(".weight").rpartition(".")[2]
        for name, parameter in model.trainable()
        if id(parameter) in chosen
    }
    assert names == hidden
    assert len(chosen) == 2 * (7 if "q_proj" in hidden else 4)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=60),
    st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any),
)
def test_matrices_are_divided_in_proportion_and_an_idle_rank_gets_none(costs, shares):
    owners = divide(costs, shares)
    for rank, share in enumerate(shares):
        own = sum(cost for cost, owner in zip(costs, owners, strict=True) if owner == rank)
        assert own == 0 if not share else abs(own - sum(costs) * share / sum(shares)) <= max(costs)
    assert owners == sorted(owners)
