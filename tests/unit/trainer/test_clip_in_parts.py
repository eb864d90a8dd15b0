"""The optimizer step of stages that have a part of the gradient each: as one of all parts."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from hearth.trainer.optimizer_step import Learner

SETTINGS = SimpleNamespace(clip_norm=1.0, warmup_steps=0, schedule="constant")
SHAPES = ((4, 6), (5,), (3, 2), (7,))


def learners(scale, *cuts):
    """Return the learners of these parts of all parameters."""
    torch.manual_seed(0)
    every = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in SHAPES]
    made = []
    for part in (every[slice(*cut)] for cut in cuts):
        scaler = torch.amp.GradScaler("cpu", scale or 1.0, enabled=scale is not None)
        optimizer = torch.optim.AdamW(part, 0.1)
        made.append((part, Learner(optimizer, SETTINGS, part, scaler, 10), scaler))
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
    assert norm > SETTINGS.clip_norm
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
