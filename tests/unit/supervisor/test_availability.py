"""The house's word on a node, asked again and again beside the supervisor's event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, nullcontext

import pytest
from support.waiting import until

from hearth.lend import command
from hearth.lend.choice import OFF, LendChoice, write
from hearth.supervisor import availability
from hearth.supervisor.availability import Availability, asking
from hearth.supervisor.decisions.events import OwnerSays


@pytest.fixture(autouse=True)
def hurried(monkeypatch) -> None:
    monkeypatch.setattr(availability, "ASK_EVERY", 0.0)
    monkeypatch.setattr(availability, "AGAIN", 0.0)


def answers(*words: str):
    """Return a maker of a function that gives these answers, and then the last one for ever."""
    left = list(words)
    return lambda: nullcontext(lambda: left.pop(0) if len(left) > 1 else left[0])


def test_the_first_word_and_each_change_are_told_once():
    async def scene() -> list[str]:
        events: asyncio.Queue[OwnerSays] = asyncio.Queue()
        asked = Availability(answers("", "", "a game", "a game", "a film", ""), events, print)
        await asked.first(10)
        told = [(await asyncio.wait_for(events.get(), 10)).why for _ in range(4)]
        asked.close()
        return [*told, asked.says]

    assert asyncio.run(scene()) == ["", "a game", "a film", "", ""]


def test_an_answer_that_never_comes_holds_up_nobody():
    hangs = threading.Event()

    async def scene() -> str:
        asked = Availability(lambda: nullcontext(hangs.wait), asyncio.Queue(), print)
        await asked.first(0.05)
        asked.close()
        return asked.says

    assert asyncio.run(scene()) == ""
    hangs.set()


def test_a_sensor_that_fails_is_said_once_and_asked_again():
    said: list[str] = []
    asked_before: list[int] = []

    def fails_twice() -> str:
        asked_before.append(1)
        if len(asked_before) <= 2:
            raise ValueError("the sensor is broken")
        return "a game"

    async def scene() -> str:
        events: asyncio.Queue[OwnerSays] = asyncio.Queue()
        asked = Availability(lambda: nullcontext(fails_twice), events, said.append)
        await asyncio.wait_for(asked.first(30), 10)
        told = await asyncio.wait_for(events.get(), 10)
        asked.close()
        return told.why

    assert asyncio.run(scene()) == "a game"
    (words,) = said
    assert "the sensor is broken" in words


def test_sensors_are_closed_with_the_owner():
    closed = threading.Event()

    @contextmanager
    def sensors():
        yield lambda: ""
        closed.set()

    async def scene() -> None:
        asked = Availability(sensors, asyncio.Queue(), print)
        await asked.first(10)
        asked.close()

    asyncio.run(scene())
    assert closed.wait(10)


def test_a_command_is_not_run_any_more_when_nobody_asks(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "EVERY", 0.05)
    with asking({"command": "echo >> asked"}, tmp_path) as ask:
        assert ask() == ""
    until(lambda: not any(each.name == "lend_command" for each in threading.enumerate()))


def test_the_word_of_a_person_takes_the_machine_and_gives_it_back(tmp_path):
    with asking({"when": ""}, tmp_path) as ask:
        assert ask() == ""
        write(tmp_path, LendChoice(OFF))
        assert "by hand" in ask()
        write(tmp_path, LendChoice())
        assert ask() == ""
