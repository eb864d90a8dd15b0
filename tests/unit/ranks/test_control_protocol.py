"""Orders of a supervisor to its ranks, and their answers: the lines, the layout, the socket."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
import sys
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rubbish import INTEGERS, cleaned
from support.supervisors import TRAINING

from hearth.ranks.control_protocol import (
    Leave,
    LoadAlone,
    Message,
    Pause,
    ProtocolError,
    Waiting,
    connect_to_supervisor,
    decode,
    encode,
    layout_text,
    listen_for_ranks,
    node_of_each_rank,
    parse_layout,
)

_CHOICES = st.dictionaries(st.text(), st.text() | st.integers() | st.none())
_VALUES = {
    int: INTEGERS,
    bool: st.booleans(),
    str: st.text(),
    float: st.floats(allow_nan=False),
    tuple[str, ...]: st.lists(st.text()).map(tuple),
    dict[str, str]: st.dictionaries(st.text(), st.text()),
}


def _messages(kind: type) -> st.SearchStrategy:
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: _VALUES.get(hint, _CHOICES) for name, hint in hints.items()})


@given(st.one_of(*map(_messages, Message.__args__)))
def test_every_message_arrives_in_one_line_as_it_was_said(message):
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert dataclasses.asdict(decode(line)) == cleaned(dataclasses.asdict(message))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"\xff\n",
        b"[]\n",
        b"null\n",
        b'{"type": "Launch"}\n',
        b'{"type": ["Form"]}\n',
        b'{"generation": 3}\n',
        b'{"type": "Pause"}\n',
        b'{"type": "Pause", "generation": 3, "more": 1}\n',
        b"[" * 100_000,
    ],
)
def test_anything_else_is_no_message(line):
    with pytest.raises(ProtocolError):
        decode(line)


def test_a_file_name_that_is_no_text_reaches_the_supervisor_all_the_same():
    told = Waiting("broken", 3, 7, loaded=True, message="data/\udce4.jsonl")
    assert decode(encode(told)).message == "data/?.jsonl"


def test_messages_are_values():
    assert Pause(3) == Pause(3) != Pause(4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Leave(True).save = False


@given(
    st.lists(st.tuples(st.text(), st.integers(1, 9)), min_size=1, unique_by=lambda each: each[0])
)
def test_a_layout_is_read_as_it_was_written(nodes):
    layout = tuple(nodes)
    assert parse_layout(layout_text(layout)) == layout


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", "3", '["ab"]', "[[1, 2]]", '[["a", 0]]', '[["a", true]]'),
        *('[["a", 1, 2]]', '[["a", 1], ["a", 1]]', '[["a", "1"]]', '[[["a"], 1]]'),
    ],
)
def test_a_layout_names_different_nodes_with_ranks(text):
    with pytest.raises(ProtocolError, match="HEARTH_LAYOUT"):
        parse_layout(text)


def test_a_rank_keeps_its_number_whoever_is_in_the_group():
    layout = (("tower", 1), ("laptop", 2), ("attic", 1))
    assert node_of_each_rank(layout) == ("tower", "laptop", "laptop", "attic")


def test_ranks_meet_their_supervisor_however_long_the_path_is(tmp_path):
    folder = tmp_path / ("a" * 120) / ("b" * 120)
    folder.mkdir(parents=True)
    with pytest.raises(OSError):
        connect_to_supervisor(folder)
    open_before = set(os.listdir("/proc/self/fd"))
    with listen_for_ranks(folder) as listener, connect_to_supervisor(folder) as rank:
        with listener.accept()[0] as supervisor:
            rank.sendall(encode(LoadAlone({"precision": "bf16"})))
            with supervisor.makefile("rb") as lines:
                assert decode(lines.readline()) == LoadAlone({"precision": "bf16"})
        mode = (folder / "control").lstat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) & 0o077 == 0
    assert set(os.listdir("/proc/self/fd")) == open_before


def test_a_socket_left_by_an_earlier_supervisor_is_replaced(tmp_path):
    listen_for_ranks(tmp_path).close()
    with pytest.raises(ConnectionRefusedError):
        connect_to_supervisor(tmp_path)
    with listen_for_ranks(tmp_path), connect_to_supervisor(tmp_path):
        pass


def test_orders_need_the_standard_library_only():
    code = "import sys; import hearth.ranks.control_protocol; print('torch' in sys.modules)"
    command = [sys.executable, "-c", code]
    variables = os.environ | {"PYTHONPATH": str(TRAINING)}
    assert subprocess.check_output(command, env=variables, text=True).strip() == "False"
