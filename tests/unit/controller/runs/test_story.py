"""A run as its metrics tell it."""

from hearth_controller.runs.story import Story


def test_a_run_has_reached_its_newest_checkpoint_wherever_that_stands():
    assert Story.from_lines([]).reached is None
    # A run that went on from step 20 writes 30 anew, behind an older 40.
    lines = [{"kind": "checkpoint", "step": step} for step in (20, 40, 30)]
    assert Story.from_lines(lines).reached == 40
