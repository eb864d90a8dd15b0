"""The memory of a rank that holds some of a model's layers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.config import Settings, load_preset
from hearth.fit.capacity import GIB
from hearth.fit.estimate import Case, estimate, part_of, stage_estimate

SHAPE = load_preset("llama2-7b").shape
TIED = load_preset("smollm2-135m").shape
CASE = Case(
    Settings(
        model="any", micro_batch=1, precision="bf16", backend="transformers", optimizer="adamw"
    ).at_most(),
    gpu=True,
)


def changed(**changes):
    gpu = changes.pop("gpu", True)
    return replace(CASE, gpu=gpu, settings=CASE.settings.model_copy(update=changes))


cases = st.builds(
    changed,
    gpu=st.booleans(),
    gradient_checkpointing=st.booleans(),
    load_in_4bit=st.booleans(),
    micro_batch=st.integers(1, 4),
    precision=st.sampled_from(["bf16", "fp32"]),
)
shapes = st.sampled_from([SHAPE, TIED, replace(TIED, tie_word_embeddings=False)])


@given(shapes, cases)
def test_a_single_stage_needs_what_the_whole_model_needs(shape, case):
    shape = replace(shape, parameters=shape.decoder_parameters)
    single = stage_estimate(
        shape, case, shape.num_hidden_layers, first=True, last=True, in_flight=1
    )
    assert single == estimate(shape, case)


@given(shapes, cases, st.integers(1, 20), st.booleans(), st.booleans(), st.integers(1, 4))
def test_more_layers_ends_and_micro_batches_never_need_less(
    shape, case, layers, first, last, in_flight
):
    def need(layers=layers, first=first, last=last, in_flight=in_flight):
        return stage_estimate(
            shape, case, layers, first=first, last=last, in_flight=in_flight
        ).total

    assert need(layers=layers + 1) > need()
    assert need(in_flight=in_flight + 1) > need()
    # Nothing waits for the first stage; where its embeddings are the head, they cost it nothing.
    assert need(first=True) >= need(first=False) or (last and not case.gpu)
    assert need(last=True) >= need(last=False)


@given(shapes, st.integers(1, 29))
def test_two_stages_hold_the_model_once_and_a_tied_table_twice(shape, cut):
    ends = (
        part_of(shape, cut, True, False),
        part_of(shape, shape.num_hidden_layers - cut, False, True),
    )
    twice = shape.vocab_size * shape.hidden_size * shape.tie_word_embeddings
    assert sum(end.parameters for end in ends) == pytest.approx(
        shape.decoder_parameters + twice, abs=1
    )


def test_a_middle_stage_has_no_logits_and_its_own_weights_only():
    middle = stage_estimate(SHAPE, CASE, 8, first=False, last=False, in_flight=2)
    assert middle.logits == 0
    assert middle.weights / GIB == pytest.approx(3.02, abs=0.02)
