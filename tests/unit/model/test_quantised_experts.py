"""Experts in 4 bits compute as Transformers' experts with the values that those bits stand for."""

from __future__ import annotations

import pytest
import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralExperts

from hearth.model.experts import QuantisedExperts

COUNT, WIDTH, INNER = 4, 64, 128


@pytest.fixture(scope="module")
def plain():
    """Return Transformers' own experts, with random weights."""
    config = MixtralConfig(num_local_experts=COUNT, hidden_size=WIDTH, intermediate_size=INNER)
    experts = MixtralExperts(config)
    drawn = torch.Generator().manual_seed(0)
    for parameter in experts.parameters():
        parameter.data = 0.1 * torch.randn(parameter.shape, generator=drawn)
        parameter.requires_grad = False
    return experts


@pytest.fixture(scope="module")
def quantised(plain):
    """Return the same experts in 4 bits."""
    experts = QuantisedExperts(plain, torch.float32)
    for number in range(COUNT):
        for name, matrix in matrices(plain, number).items():
            experts.put(number, name, matrix)
    return experts


def matrices(experts, number):
    gate, up = experts.gate_up_proj.data[number].chunk(2)
    return {"gate": gate, "up": up, "down": experts.down_proj.data[number]}


def values(quantised, number, name):
    weight = quantised.weights[f"{number}_{name}"]
    return dequantize_4bit(weight.data, weight.quant_state)


def test_each_matrix_is_quantised_as_a_layer_of_its_own(plain, quantised):
    for number in range(COUNT):
        for name, matrix in matrices(plain, number).items():
            layer = Linear4bit(*reversed(matrix.shape), bias=False, quant_type="nf4")
            layer.load_state_dict({"weight": matrix})
            expected, found = layer.to("cpu").weight, quantised.weights[f"{number}_{name}"]
            assert torch.equal(found, expected)
            states = [each.quant_state.as_dict(packed=True) for each in (expected, found)]
            assert all(torch.equal(states[1][key], value) for key, value in states[0].items())
            error = (values(quantised, number, name) - matrix).abs().max()
            assert 0 < error < 0.2 * matrix.abs().max()


def test_results_and_gradients_are_those_of_transformers(plain, quantised):
    for number in range(COUNT):
        found = {name: values(quantised, number, name) for name in ("gate", "up", "down")}
        plain.gate_up_proj.data[number] = torch.cat([found["gate"], found["up"]])
        plain.down_proj.data[number] = found["down"]
    drawn = torch.Generator().manual_seed(1)
    tokens = torch.randn(30, WIDTH, generator=drawn)
    weights, chosen = torch.rand(30, COUNT, generator=drawn).topk(2)
    chosen[chosen == 3] = 1  # an expert that no token has chosen
    results = []
    for experts in (plain, quantised):
        hidden = tokens.clone().requires_grad_()
        result = experts(hidden, chosen, weights)
        result.square().sum().backward()
        results.append((result.detach(), hidden.grad))
    for found, expected in zip(results[1], results[0], strict=True):
        assert (found - expected).norm() <= 1e-5 * expected.norm()
