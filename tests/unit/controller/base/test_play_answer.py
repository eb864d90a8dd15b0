"""The answer of a play, as tasks make it up."""

from __future__ import annotations

from hearth_controller.base.answer import Answer


def test_an_answer_is_what_its_tasks_found_and_its_verdict_is_the_worst(tmp_path):
    answer = Answer()
    answer.add({"answer": {"run": "evening"}}, "")
    answer.add({"answer": {"logs": {"desk": ["a"]}}, "verdict": "degraded"}, "of desk")
    answer.add({"answer": {"logs": {"laptop": []}}}, "of laptop")
    answer.add({}, "that was all")
    answer.write(tmp_path / "answer")
    read = Answer.read(tmp_path / "answer")
    assert read == answer
    assert read.for_programs()["verdict"] == "degraded"
    assert read.facts == {"run": "evening", "logs": {"desk": ["a"], "laptop": []}}
    assert read.text == "of laptop\nthat was all"
    assert Answer.read(tmp_path / "none") is None


def test_of_facts_with_a_verdict_the_newest_count():
    answer = Answer()
    answer.add({"answer": {"verdict": "broken", "unmended": {"desk": ["time"]}}}, "to be mended")
    answer.add({"answer": {"verdict": "degraded", "unmended": {}}}, "mended")
    assert (answer.verdict, answer.text) == ("degraded", "mended")
    assert answer.for_programs() == {"verdict": "degraded", "unmended": {}}
