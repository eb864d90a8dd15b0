"""The report of a file that grows on a node."""

from __future__ import annotations

import json

import pytest

from hearth.record.stream import Progress, Tail, Watch


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


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "[" * 5000])
def test_a_record_that_is_none_ends_no_report(tmp_path, text):
    (tmp_path / "results" / "r1").mkdir(parents=True)
    (tmp_path / "results" / "r1" / "supervisor.json").write_text(text)
    watch = Watch(
        {
            **{"workspace": str(tmp_path), "run": "r1", "queue": []},
            "files": {"log": {"place": None, "lines": 5}},
        }
    )
    assert watch.changes() == {"record": None, "alive": False, "log": None}


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def reached(generation, step, ended=False):
    return {"generation": generation, "step": step, "ended": ended}


def test_progress_is_the_newest_group_its_last_step_and_whether_the_run_ended(tmp_path):
    file = tmp_path / "metrics.jsonl"
    progress = Progress(str(file))
    assert progress.now() == {}
    file.write_text("")
    assert progress.now() == {}
    text = lines({"kind": "start", "generation": 4, "step": 0, "ranks": []})
    for addition, expected in (
        ("", reached(4, 0)),
        (lines({"kind": "step", "step": 1}, {"kind": "step", "step": 2}), reached(4, 2)),
        (lines({"kind": "plan", "step": 9}, {"kind": "step", "step": 3}), reached(4, 3)),
        (
            lines({"kind": "team", "generation": 5, "step": 3, "nodes": ["lap"]}),
            reached(5, 3),
        ),
        (lines([1], {"kind": "step"}, {"kind": "end", "step": 3}), reached(5, 3, True)),
        ("[" * 5000 + "\n", reached(5, 3, True)),
    ):
        text += addition
        file.write_text(text)
        assert progress.now() == expected
    half = lines({"kind": "start", "generation": 6, "step": 2})
    file.write_text(text + half[:-5])
    assert progress.now() == reached(5, 3, True)
    file.write_text(text + half)
    assert progress.now() == reached(6, 2)
    (tmp_path / "other").write_text(lines({"kind": "start"}))
    (tmp_path / "other").replace(file)  # as of a run that goes on from an earlier checkpoint
    assert progress.now() == reached(0, 0)


def test_progress_is_reported_with_the_metrics_when_it_changes(tmp_path):
    folder = tmp_path / "results" / "r1"
    folder.mkdir(parents=True)
    request = {"workspace": str(tmp_path), "run": "r1", "queue": []}
    metrics = {"files": {"metrics": {"place": None, "lines": None}}}
    watch = Watch(request | metrics)
    assert "reached" not in watch.changes()
    (folder / "metrics.jsonl").write_text(lines({"kind": "start"}, {"kind": "step", "step": 7}))
    assert watch.changes()["reached"] == reached(0, 7)
    assert watch.changes() == {}
