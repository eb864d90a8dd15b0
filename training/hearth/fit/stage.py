"""Estimated memory need of a rank that holds some of the layers (`parallel: pipeline`)."""

from __future__ import annotations

from dataclasses import replace

from hearth.config.shape import Shape
from hearth.fit.case import Case
from hearth.fit.estimate import Estimate, estimate, kept


def part_of(shape: Shape, layers: int, first: bool, last: bool) -> Shape:
    """Return the shape of a stage of `layers` layers.

    The first stage holds the embeddings, the last one the final norm and the head, also where both
    are one tensor.
    """
    # Learned positions belong to the first stage; they count as part of the embeddings.
    table = shape.vocab_size * shape.hidden_size
    positions = shape.max_position_embeddings * shape.hidden_size * shape.family.positions
    # The first layers of a mixture of experts have none.
    without_experts = min(layers, shape.first_k_dense_replace) if first else 0
    part = replace(shape, num_hidden_layers=layers, first_k_dense_replace=without_experts)
    ends = replace(shape, num_hidden_layers=0, first_k_dense_replace=0)
    held = part.decoder_parameters - ends.decoder_parameters
    held += first * (table + positions) + last * (table + shape.hidden_size)
    if first and last and shape.tie_word_embeddings:
        held -= table
    return replace(part, parameters=held)


def stage_estimate(
    shape: Shape, case: Case, layers: int, *, first: bool, last: bool, in_flight: int
) -> Estimate:
    """Estimate the memory of a stage that holds `in_flight` micro-batches between their passes.

    Beside what its layers keep of each of them there is the stage's result, which has been sent
    and whose gradient is awaited. What travels lies in the computer's memory: gradients that have
    arrived, and of two more micro-batches, which only the stage before still has under way, hidden
    states that wait or a gradient on its way back.
    """
    part = part_of(shape, layers, first, last)
    one = estimate(part, case)
    more = (in_flight - 1) * kept(part, case)
    copies = 0 if last else in_flight
    if not case.gpu or case.unified:
        # A unified GPU's results are copied to be sent; on a CPU they are sent as they are.
        copies = copies * (3 if case.unified else 2) + 2 * (not first)
    results = copies * case.tokens * hidden_bytes(shape, case)
    return replace(
        one,
        activations=one.activations + round(more) + results,
        logits=one.logits if last else 0,
    )


def hidden_bytes(shape: Shape, case: Case) -> int:
    """Return the bytes of a token's hidden state, which stages send to each other."""
    return shape.hidden_size * case.hidden_size
