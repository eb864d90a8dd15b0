"""Unsloth's kernels in Hearth's loop give what Transformers gives."""

from __future__ import annotations

import json

import pytest
import torch
from support.ranks import figures, python
from support.repository import ROOT

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]

UNEQUAL = (3, 2, 1)


def apart(one, other):
    """Return the distance of two sets of gradients, relative to the second."""
    assert one.keys() == other.keys()
    names = sorted(one.keys() - {"loss"})
    first, second = (torch.cat([each[name].flatten() for name in names]) for each in (one, other))
    return ((first - second).norm() / second.norm()).item()


def test_gradients_over_unequal_micro_batches_are_those_of_transformers(computed):
    """As near to float32 as Transformers' own bf16 is, or nearly so."""
    exact = computed("gradients", "transformers", "fp32", *UNEQUAL)
    plain = computed("gradients", "transformers", "bf16", *UNEQUAL)
    fast = computed("gradients", "unsloth", "bf16", *UNEQUAL)
    assert apart(plain, exact) < 0.05
    assert apart(fast, exact) < 2 * apart(plain, exact)
    assert fast["loss"].item() == pytest.approx(exact["loss"].item(), rel=1e-2)


def test_gradients_do_not_depend_on_how_the_rows_are_cut(computed):
    pieces = computed("gradients", "unsloth", "bf16", *UNEQUAL)
    whole = computed("gradients", "unsloth", "bf16", sum(UNEQUAL))
    assert apart(pieces, whole) < 0.02
    assert pieces["loss"].item() == pytest.approx(whole["loss"].item(), rel=1e-3)


@pytest.mark.parametrize("backend", ["unsloth", "transformers"])
def test_a_packed_document_does_not_see_its_neighbour(computed, backend):
    losses = {name: loss.item() for name, loss in computed("isolation", backend, "bf16").items()}
    assert losses["neighbour"] == pytest.approx(losses["as it is"], rel=1e-6)
    assert losses["itself"] != pytest.approx(losses["as it is"], rel=1e-5)


def test_both_backends_learn_the_same_curve(trained):
    curves = []
    for backend in ("unsloth", "transformers"):
        folder, _ = trained(backend, 1, "--backend", backend, "--precision", "bf16")
        curves.append(figures(folder, "step", "loss"))
    assert curves[0] == pytest.approx(curves[1], rel=0.02)
    assert curves[0][-1] < 0.9 * curves[0][0]


def test_the_test_of_a_single_machine_computes_with_unsloth(tmp_path):
    done = python(tmp_path, ROOT / "scripts" / "single_gpu_test.py", "--json")
    unsloth = json.loads(done.stdout)["unsloth"]
    assert (unsloth["not_tried"], unsloth["failed"], unsloth["error"]) == ("", "", "")
    assert 4 < unsloth["loss"] < 8  # a random model of 259 tokens
