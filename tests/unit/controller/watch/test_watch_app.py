"""`hearth watch` in a terminal of several sizes, over plays that are stand-ins."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import asynccontextmanager

import pytest
from support.facts import assert_names
from support.metric_lines import start_line, step_line
from support.relayed import StandInCheckout, lines, state
from textual.widgets import DataTable

from hearth_controller.watch.app import WatchApp
from hearth_controller.watch.dialogs import Help, NodeLog, QuestionDialog
from hearth_controller.watch.feed import Feed

NODES = ("desk", "laptop", "tower")
SOON = 120  # seconds; a busy computer takes long to start the child that plays
"""Seconds for what takes two on a quiet computer."""
SIZES = ((80, 24), (120, 40), (200, 60))
TIME = "2026-11-22T03:10:00.000+00:00"
STEPS = [step_line(50, 30, 20, step=step, loss=4 - step / 20, time=TIME) for step in range(1, 31)]
HELD_OUT = {"kind": "evaluate", "step": 0, "when": "before", "perplexity": 9.0, "loss": 4.0}
METRICS = [start_line(*NODES, time=TIME), HELD_OUT | {"time": TIME}, *STEPS]


def events(*more, **changes):
    """Return the events of three nodes; the first one draws."""
    found = {node: [state(node, NODES, **changes), *more] for node in NODES}
    found["desk"][1:1] = [lines(*METRICS, anew=True), {"progress": "step 30/60"}]
    return found


@pytest.fixture
def checkout(tmp_path):
    found = StandInCheckout(tmp_path)
    found.plan("attach", run="evening", events=events(), hold=True)
    model = {"runs": [{"name": "evening", "model": "llama2-7b"}]}
    gpu = {"used_mib": 8192, "total_mib": 16384, "celsius": 71}
    network = {"interface": "enp5s0", "received": 1_200_000, "sent": 900_000}
    nodes = [{"name": "desk", "gpus": [gpu], "network": network}]
    found.plan("status", answer={"facts": model | {"nodes": nodes}})
    return found


@asynccontextmanager
async def watched(checkout, size=(120, 40), run="evening"):
    """Provide the app and its pilot once the run is on the screen."""
    app = WatchApp(checkout, run)
    async with app.run_test(size=size, notifications=True) as pilot:
        yield app, pilot


async def until(pilot, condition):
    """Wait until something holds."""
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, screen_of(pilot.app)
        await pilot.pause(0.05)


def screen_of(app):
    """Return the lines of the screen."""
    return [
        "".join(segment.text for segment in strip)
        for strip in app.screen._compositor.render_strips()
    ]


async def shows(app, pilot, *facts):
    """Wait until each of these facts is on a line of the screen."""
    for fact in facts:
        await until(pilot, lambda fact=fact: any(fact in line for line in screen_of(app)))


@pytest.mark.parametrize("size", SIZES)
def test_every_size_shows_the_run_its_nodes_its_curve_and_its_events(checkout, size):
    async def watching():
        async with watched(checkout, size) as (app, pilot):
            facts = ("evening", "llama2-7b", "training", "step 30/60", "100 tokens/s", "2.500")
            of_nodes = (*NODES, "33%", "71 °C", "8.0/16 GB", "1.2 MB/s")
            await shows(app, pilot, *facts, *of_nodes, "held out after step 0")
            await until(
                pilot, lambda: any(re.search("[\u2801-\u28ff]", line) for line in screen_of(app))
            )
            shown = screen_of(app)
            assert len(shown) == size[1]
            assert_names(shown[-1], "leave", "stop", "log", "lend", "help")
            assert app.screen.size == size
            wide = app.query_one("#events").region.x > 0
            assert wide == (size[0] > 100)

    asyncio.run(watching())


def test_leaving_says_that_the_run_continues_and_ends_the_play(checkout):
    async def watching():
        async with watched(checkout) as (app, pilot):
            await shows(app, pilot, "step 30/60")
            await pilot.press("q")
        assert_names(app.return_value, "evening", "hearth watch evening")
        assert app.feed.answer is None

    asyncio.run(watching())
    assert {name for name, _ in checkout.played} == {"attach", "status"}


def test_stopping_asks_first(checkout):
    checkout.plan("stop", answer={"text": "evening: ends after its step, with a checkpoint"})

    async def watching():
        async with watched(checkout) as (app, pilot):
            await shows(app, pilot, "step 30/60")
            await pilot.press("s")
            await until(pilot, lambda: isinstance(app.screen, QuestionDialog))
            await pilot.press("escape")
            await until(pilot, lambda: len(app.screen_stack) == 1)
            assert "stop" not in dict(checkout.played)
            await pilot.press("s")
            await until(pilot, lambda: isinstance(app.screen, QuestionDialog))
            await pilot.press("y")
            await shows(app, pilot, "ends after its step")

    asyncio.run(watching())
    assert dict(checkout.played)["stop"] == {"run": "evening", "wait": "off"}


def test_the_chosen_node_is_lent_or_kept_and_a_refusal_is_shown(checkout):
    error = {"node": "laptop", "message": "it was started without lending"}
    checkout.plan("lend", answer={"errors": [error]})

    async def watching():
        async with watched(checkout) as (app, pilot):
            await shows(app, pilot, "step 30/60")
            app.query_one(DataTable).focus()
            await pilot.press("down", "o")
            await until(pilot, lambda: isinstance(app.screen, QuestionDialog))
            await pilot.press("n")
            await shows(app, pilot, "started without lending")

    asyncio.run(watching())
    assert dict(checkout.played)["lend"] == {"nodes": "laptop", "lend": "off"}


def test_the_log_of_the_chosen_node_is_followed_until_it_is_closed(checkout):
    checkout.plan("logs", lines=["  tower: [red]loading[/] the model"], hold=True)

    async def watching():
        async with watched(checkout, (80, 24)) as (app, pilot):
            await shows(app, pilot, "step 30/60")
            app.query_one(DataTable).focus()
            await pilot.press("down", "down", "l")
            await until(pilot, lambda: isinstance(app.screen, NodeLog))
            await shows(app, pilot, "[red]loading[/] the model")
            await pilot.press("escape")
            await until(pilot, lambda: len(app.screen_stack) == 1)

    asyncio.run(watching())
    words = dict(checkout.played)["logs"]
    assert (words["run"], words["nodes"], words["follow"]) == ("evening", "tower", "on")


def test_help_names_the_keys_and_fits_the_smallest_terminal(checkout):
    async def watching():
        async with watched(checkout, (80, 24)) as (app, pilot):
            await shows(app, pilot, "step 30/60")
            await pilot.press("question_mark")
            await until(pilot, lambda: isinstance(app.screen, Help))
            await shows(app, pilot, "leave; training continues", "held-out data")
            await pilot.press("q")
            await until(pilot, lambda: len(app.screen_stack) == 1)

    asyncio.run(watching())


def test_a_run_that_ended_shows_its_closing_text_until_one_leaves(checkout):
    ended = {"outcome": {"state": "finished"}}
    of_nodes = events(ended, state="finished")
    text = "evening finished: 60 of 60 steps\n  report  runs/evening"
    checkout.plan("attach", run="evening", events=of_nodes, answer={"text": text})

    async def watching():
        async with watched(checkout) as (app, pilot):
            await shows(app, pilot, "finished: 60 of 60 steps", "report  runs/evening")
            await pilot.pause(1)
            assert app.is_running
            await pilot.press("q")
        assert (app.return_value, app.return_code) == ("", 0)

    asyncio.run(watching())


def test_a_run_that_failed_shows_the_node_and_the_fix(checkout):
    cause = {"node": "laptop", "rank": 1, "kind": "rank_failed", "message": "CUDA out of memory"}
    of_nodes = events({"outcome": {"state": "failed"}}, state="failed", cause=cause)
    errors = [{"node": "laptop", "message": "CUDA out of memory\n    lower micro_batch"}]
    answer = {"ended": "broken", "text": "evening failed", "errors": errors}
    checkout.plan("attach", run="evening", events=of_nodes, answer=answer)

    async def watching():
        async with watched(checkout) as (app, pilot):
            await shows(app, pilot, "failed: laptop: CUDA out of memory", "lower micro_batch")
            await pilot.press("q")
        assert app.return_code == 3

    asyncio.run(watching())


def test_what_followers_sent_last_is_read_after_the_end_of_their_play(checkout):
    """The view is busy meanwhile, so that it learns of both at once."""
    one = {"desk": [state("desk", NODES), {"progress": "step 30/60"}]}
    answer = {"text": "evening finished"}
    checkout.plan("attach", run="evening", lines=["follows"], events=one, answer=answer)
    feed = Feed(checkout, "evening", changed=lambda: time.sleep(2))
    asyncio.run(feed.follow())
    assert feed.answer.text == "evening finished"
    assert feed.view.progress == "step 30/60"


def test_without_such_a_run_the_view_ends_with_what_the_play_said(checkout):
    errors = [{"node": "", "message": "no node has a run 'evning'; did you mean evening?"}]
    checkout.plan("attach", answer={"ended": "refused", "errors": errors})

    async def watching():
        async with watched(checkout, run="evning") as (app, pilot):
            await until(pilot, lambda: not app.is_running)
        assert app.return_code == 2
        assert_names(app.return_value, "evning", "evening")

    asyncio.run(watching())
