"""The house's word on a node, asked again and again beside the supervisor's event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from hearth.lend.choice import OFF, Choice, write
from hearth.team import house
from hearth.team.house import House, HouseSays, asking


@pytest.fixture(autouse=True)
def hurried(monkeypatch) -> None:
    monkeypatch.setattr(house, "ASK_EVERY", 0.0)


def answers(*words: str):
    """Return a maker of a function that gives these answers, and then the last one for ever."""
    left = list(words)
    return lambda: lambda: left.pop(0) if len(left) > 1 else left[0]


def test_the_first_word_and_each_change_are_told_once():
    async def scene() -> list[str]:
        events: asyncio.Queue[HouseSays] = asyncio.Queue()
        asked = House(answers("", "", "a game", "a game", "a film", ""), events, print)
        await asked.first(10)
        told = [(await asyncio.wait_for(events.get(), 10)).why for _ in range(4)]
        asked.close()
        return [*told, asked.says]

    assert asyncio.run(scene()) == ["", "a game", "a film", "", ""]


def test_an_answer_that_never_comes_holds_up_nobody():
    hangs = threading.Event()

    async def scene() -> str:
        asked = House(lambda: hangs.wait, asyncio.Queue(), print)
        await asked.first(0.05)
        asked.close()
        return asked.says

    assert asyncio.run(scene()) == ""
    hangs.set()


def test_a_sensor_that_fails_is_said_and_ends_nothing():
    said: list[str] = []

    def fails() -> str:
        raise ValueError("the sensor is broken")

    async def scene() -> None:
        asked = House(lambda: fails, asyncio.Queue(), said.append)
        await asyncio.wait_for(asked.first(30), 10)

    asyncio.run(scene())
    assert "the sensor is broken" in said[0]


def test_the_word_of_a_person_takes_the_machine_and_gives_it_back(tmp_path):
    ask = asking({"when": ""}, tmp_path)
    assert ask() == ""
    write(tmp_path, Choice(OFF))
    assert "by hand" in ask()
    write(tmp_path, Choice())
    assert ask() == ""
