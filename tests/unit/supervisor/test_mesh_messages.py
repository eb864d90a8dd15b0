"""The lines that the supervisors of a mesh exchange."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.rubbish import cleaned

from hearth.base.json_lines import ProtocolError
from hearth.supervisor.decisions.voting import Votes
from hearth.supervisor.messages import Message, NodeReport, NotAdmitted, Reaches, decode, encode

WORDS = st.dictionaries(st.text(), st.text() | st.integers() | st.none(), max_size=2)
st.register_type_strategy(
    NodeReport, st.builds(NodeReport, choices=st.none() | WORDS, votes=st.from_type(Votes))
)
REPORT = NodeReport("desk", "loaded", Votes())


st.register_type_strategy(float, st.floats(allow_nan=False))  # NaN equals nothing


@given(st.from_type(Message))
def test_every_message_is_one_line_and_reads_back(message):
    line = encode(message)
    assert line.index(b"\n") == len(line) - 1
    assert dataclasses.asdict(decode(line)) == cleaned(dataclasses.asdict(message))


def test_no_text_of_another_node_commands_the_terminal_or_breaks_a_log():
    told = NotAdmitted("\x1b]0;owned\x07your turn\x1b[2J comes\u202e later")
    assert decode(encode(told)) == NotAdmitted("your turn comes later")
    ways = Reaches(unreached={"\x1b[31mdesk": "no \x9b way"})
    left = dataclasses.replace(REPORT, reaches=ways, why="a\tb\nc")
    assert decode(encode(left)).reaches.unreached == {"desk": "no  way"}
    assert decode(encode(left)).why == "a\tb\nc"


@pytest.mark.parametrize(
    "change",
    [
        {"state": "asleep"},
        {"generation": "3"},
        {"generation": True},
        {"connected": "laptop"},
        {"connected": [1]},
        {"choices": ["fp32"]},
        {"votes": None},
        {"votes": {"committed": {"generation": 1}}},
        {"unknown": 1},
    ],
)
def test_a_field_of_another_type_is_a_protocol_error(change):
    words = {"type": "NodeReport", **dataclasses.asdict(REPORT)}
    assert decode(json.dumps(words).encode()) == REPORT
    with pytest.raises(ProtocolError, match="supervisor's message"):
        decode(json.dumps(words | change).encode())


@given(st.binary())
@example(b"[" * 60_000)
@example(b'{"type": "Go", "port": 1}')
@example(b'{"type": "Vote"}')
@example(b"{}")
@example(b'{"type": "Nonsense"}')
@example(b'{"type": "Hello", "node": "a", "source": "", "nonce": "", "proof": "\\ud800"}')
@example(b'{"type": "NotAdmitted", "reason": "\\uDFFF"}')
@example(b'{"type": ["Challenge"]}')
@example(b'{"type": "Challenge"}')
@example(b'{"type": "Challenge", "nonce": "1", "more": 2}')
def test_anything_else_is_a_protocol_error(line):
    with pytest.raises(ProtocolError):
        decode(line)
