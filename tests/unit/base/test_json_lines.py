"""Protocols of one JSON object a line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rubbish import cleaned

from hearth.base.json_lines import JsonLines, ProtocolError


@dataclass(frozen=True)
class Inner:
    """A dataclass in a message."""

    number: int


@dataclass(frozen=True)
class Order:
    """A message with a field of each kind."""

    name: str
    seconds: float
    state: Literal["on", "off"]
    inner: Inner | None = None
    several: tuple[Inner, ...] = ()
    facts: dict[str, Any] | None = None


@dataclass(frozen=True)
class Beat:
    """A message without fields."""


LINES = JsonLines(Order | Beat, "an order")
GIVEN = '{"type": "Order", "name": "a", "seconds": 1, "state": "on"'


@given(st.builds(Order, seconds=st.floats(allow_nan=False), facts=st.none()) | st.just(Beat()))
def test_messages_read_back_with_what_is_in_them(message):
    assert asdict(LINES.decode(LINES.encode(message))) == cleaned(asdict(message))


def test_fields_have_defaults_and_whole_numbers_are_seconds_too():
    assert LINES.decode((GIVEN + "}").encode()) == Order("a", 1.0, "on")


@pytest.mark.parametrize(
    "rest",
    [
        '"state": "idle"',
        '"name": null',
        '"seconds": "1"',
        '"seconds": true',
        f'"seconds": {10**400}',
        f'"inner": {{"number": {1 << 63}}}',
        '"inner": 3',
        '"inner": {"number": 3.5}',
        '"inner": {"number": 3, "other": 4}',
        '"several": {"number": 3}',
        '"several": [{"number": "3"}]',
        '"facts": []',
        '"other": 1',
    ],
)
def test_a_line_with_a_field_of_another_type_is_refused_and_shown(rest):
    with pytest.raises(ProtocolError, match=r"not an order: .*Order"):
        LINES.decode(f"{GIVEN}, {rest}}}".encode())
