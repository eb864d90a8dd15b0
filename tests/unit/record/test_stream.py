"""The report of a file that grows on a node."""

from __future__ import annotations

import pytest

from hearth.record import stream
from hearth.record.stream import RunStream, Tail


@pytest.mark.parametrize(
    ("lines", "text"), [(2, "c\nd\n"), (9, "a\nb\nc\nd\n"), (None, "a\nb\nc\nd\n")]
)
def test_a_reader_that_has_nothing_gets_the_last_lines_and_then_what_comes(tmp_path, lines, text):
    file = tmp_path / "log"
    file.write_text("a\nb\nc\nd\n")
    tail = Tail(str(file), None, lines)
    assert tail.more()["text"] == text
    file.write_text("a\nb\nc\nd\ne\n")
    more = tail.more()
    assert (more["text"], more["anew"]) == ("e\n", False)


def test_a_file_of_whole_chunks_is_not_behind_once_all_of_it_is_read(tmp_path):
    file = tmp_path / "log"
    file.write_text("x" * 2 * stream._CHUNK)
    tail = Tail(str(file), None, None)
    assert [tail.more()["behind"] for _ in range(2)] == [True, False]


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "[" * 5000])
def test_a_record_that_is_none_ends_no_report(tmp_path, text):
    (tmp_path / "results" / "r1").mkdir(parents=True)
    (tmp_path / "results" / "r1" / "supervisor.json").write_text(text)
    watch = RunStream(
        {
            **{"workspace": str(tmp_path), "run": "r1", "queue": []},
            "files": {"log": {"place": None, "lines": 5}},
        }
    )
    assert watch.changes() == {"record": None, "alive": False, "log": None}
