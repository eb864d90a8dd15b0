"""The state of a node, from what its ranks tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hearth.ranks.control_protocol import Form, Formed, LoadAlone, RankEnded, Waiting
from hearth.supervisor.decisions.local_ranks import LocalRanks
from hearth.supervisor.messages import RanksFailure

CHOICES = {"precision": "fp32"}
FORM = Form(3, ("desk",), "10.0.0.1", 29500, ("10.0.0.1",))
SAID = {
    "new": Waiting("new", 0, 0, False),
    "loaded": Waiting("new", 0, 0, True),
    "formed": Formed(3, 7, CHOICES),
    "broken": Waiting("broken", 3, 8, True, "Connection closed by peer"),
    "paused": Waiting("paused", 3, 8, True),
    "finished": RankEnded("finished", 9),
}


def after(ranks: LocalRanks, events: str) -> LocalRanks:
    """Return the ranks after these: `load`, `form`, or `0 formed` for what a rank says."""
    for event in filter(None, events.split(", ")):
        if event in ("load", "form"):
            ranks = ranks.ordered(LoadAlone(CHOICES) if event == "load" else FORM)
        else:
            local_rank, said = event.split()
            ranks = ranks.said(int(local_rank), SAID[said])
    return ranks


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ("", "starting"),
        ("0 new", "starting"),
        ("0 new, 1 new", "ready"),
        ("0 new, 1 new, load", "loading"),
        ("0 new, 1 new, load, 0 loaded", "loading"),
        ("0 new, 1 new, load, 0 loaded, 1 loaded", "loaded"),
        ("0 new, 1 new, form", "forming"),
        ("0 new, form, 1 new", "forming"),
        ("form, 0 new, 1 new", "ready"),
        ("0 new, 1 new, form, 0 formed", "forming"),
        ("0 new, 1 new, form, 0 formed, 1 formed", "training"),
        ("0 new, 1 new, form, 0 formed, 1 formed, 0 broken", "breaking"),
        ("0 new, 1 new, form, 0 formed, 0 broken", "breaking"),
        ("0 new, 1 new, form, 0 formed, 1 formed, 0 broken, 1 broken", "broken"),
        ("0 new, 1 new, form, 0 formed, 1 formed, 0 paused", "training"),
        ("0 new, 1 new, form, 0 formed, 1 formed, 0 paused, 1 paused", "paused"),
        ("0 new, 1 new, form, 0 formed, 1 formed, 0 paused, 1 broken", "broken"),
        ("0 new, 1 new, form, 0 formed, 1 formed, 0 finished", "training"),
        ("0 new, 1 new, form, 0 formed, 1 formed, 0 finished, 1 broken", "broken"),
        ("0 new, 1 new, form, 0 formed, 1 formed, 0 finished, 1 finished", "ended"),
    ],
)
def test_the_state_of_a_node_is_that_of_its_ranks_together(events, state):
    assert after(LocalRanks.starting(2), events).state == state


def test_a_node_has_the_state_of_the_run_once_all_its_ranks_have_trained():
    ranks = after(LocalRanks.starting(2), "0 new, 1 new, form, 0 formed")
    assert (ranks.trained, ranks.step, ranks.choices) == (0, 7, CHOICES)
    ranks = after(ranks, "1 formed, 0 broken")
    assert (ranks.trained, ranks.step) == (3, 8)
    ranks = after(ranks, "1 finished")
    assert ranks.ended == "finished"


def test_ranks_that_could_not_form_their_first_group_say_why_until_they_are_started_again():
    ranks = after(LocalRanks.starting(2), "0 new, 1 new, form")
    ranks = ranks.said(0, Waiting("new", 3, 0, False, "port 1 did not answer"))
    ranks = after(ranks, "1 new")
    assert (ranks.state, ranks.why) == ("ready", "port 1 did not answer")
    ranks = ranks.restarted()
    assert ranks.why == ""


def test_ranks_that_failed_have_nothing_once_they_are_started_again():
    ranks = after(LocalRanks.starting(1), "0 new, load, 0 loaded, form, 0 formed")
    killed = RanksFailure(0, "rank 0 was killed by signal 9 (SIGKILL)", curable=True)
    ranks = replace(ranks, failure=killed)
    assert (ranks.state, ranks.trained) == ("failed", 3)
    ranks = ranks.restarted()
    assert (ranks.state, ranks.trained, ranks.step) == ("starting", 0, 0)
    assert (ranks.choices, ranks.failure) == (None, None)
