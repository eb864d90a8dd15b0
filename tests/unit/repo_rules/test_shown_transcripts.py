"""Transcripts in the pages are found, replaced and compared."""

from __future__ import annotations

import pytest
from support.transcripts import blocks, differences, rewritten, shape

PAGE = """# Stop
<!-- played: stop from "ends after" to "stopped" -->
```
old
```
<!-- end -->
after
"""
SCREEN = """Stop the run
  third: ends after its step
  step 7/40 · loss 5.1 · 350 tokens/s
third was stopped: 7 of 40 steps in 3 min 2 s
  report  runs/third/report.html
"""


def test_a_block_shows_the_part_of_the_play_that_it_names():
    page = rewritten(PAGE, {"stop": SCREEN})
    (block,) = blocks(page)
    assert block.body.splitlines() == SCREEN.splitlines()[1:4]
    assert page.startswith("# Stop\n") and page.endswith("after\n")
    assert rewritten(page, {"stop": SCREEN}) == page
    assert rewritten(page, {"other": ""}) == page


def test_a_line_that_the_play_lacks_is_named():
    with pytest.raises(ValueError, match="ends after"):
        rewritten(PAGE, {"stop": "Nothing to stop\n"})


def test_numbers_times_and_names_of_runs_make_no_difference():
    other = SCREEN.replace("7/40", "9/400").replace("3 min 2 s", "4 min 40 s")
    assert differences(SCREEN, other) == []
    assert shape("smollm2-135m-20261129-000714 finished") == shape("tiny-20261130-010203 finished")


def test_another_row_or_a_row_less_is_a_difference():
    shorter = SCREEN.replace("  report  runs/third/report.html\n", "")
    assert differences(SCREEN, shorter) == ["only in the page: report"]
    assert differences(shorter, SCREEN) == ["only in the play: report"]
    assert differences(SCREEN, shorter, by_chance=("report",)) == []


def test_what_a_model_answers_makes_no_difference():
    answer = "    before             The issue with your code\n                       is another\n"
    assert shape(answer) == {"before"}


def test_of_many_lines_alike_the_first_and_the_last_are_shown():
    steps = "".join(f"  step {step}/9 · loss 4.{step}\n" for step in range(1, 10))
    whole = PAGE.replace(' from "ends after" to "stopped"', "")
    (block,) = blocks(rewritten(whole, {"stop": steps}))
    assert block.body.splitlines() == ["  step 1/9 · loss 4.1", "  …", "  step 9/9 · loss 4.9"]
