"""The speed with the whole model on each node: only with rows that its memory holds, as asked."""

from __future__ import annotations

import pytest

from hearth.config import Settings, load_preset
from hearth.fit.capacity import GIB, Room
from hearth.fit.misfits import needs
from hearth.plan.placement import LayerSpeed
from hearth.plan.speed import Speed
from hearth_controller.launch.placing import MeasuredNode, undivided

SHAPE = load_preset("llama2-7b").shape
ROWS = 32
SIZES = (1, 2, 4, 8)


@pytest.mark.parametrize(
    ("holds", "micro_batch", "at_once"),
    [(8, "auto", 8), (4, "auto", 4), (1, "auto", 1), (8, 2, 2), (2, 4, 2), (8, 3, 2)],
)
def test_ddp_is_predicted_with_the_rows_that_fit_and_no_more_than_asked_for(
    holds, micro_batch, at_once
):
    settings = Settings(
        model="any", parallel="pipeline", gradient_checkpointing=True, global_batch=ROWS
    ).model_copy(update={"micro_batch": micro_batch})
    plenty = {"desk": Room(999 * GIB, "RTX")}
    of = settings.model_copy(update={"parallel": "ddp", "micro_batch": holds})
    room = Room(needs(of, SHAPE, plenty)["desk"].total, "RTX")
    flat = Speed(SIZES, (1.0,) * len(SIZES))  # the more rows at once, the better
    node = MeasuredNode((LayerSpeed(flat, flat, flat),), (room,))
    found = undivided(settings, SHAPE, {"desk": node})
    pass_seconds = SHAPE.num_hidden_layers + 2
    assert found.step_seconds == pytest.approx(ROWS / at_once * pass_seconds)
