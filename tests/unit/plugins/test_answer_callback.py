"""The callback that tells the `hearth` command how a play ended."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from support.plugins import PLUGINS
from support.programs import stand_in
from support.waiting import HANG

from hearth_controller.base.answer import VARIABLE, Answer

INVENTORY = {
    "desk": {"ansible_connection": "local"},
    "gone": {"ansible_host": "127.0.0.1", "ansible_port": 1},
}
TABLE = {"answer": {"nodes": {"desk": 1}}, "say": "a table", "verdict": "good"}
ASSERT = {"ansible.builtin.assert": {"that": [False], "fail_msg": "no such run"}}
FAIL = {"ansible.builtin.fail": {"msg": "on fire"}}


@pytest.fixture
def answer_of(tmp_path):
    """The answer of a play with these tasks, and its exit status."""
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"hosts": INVENTORY}}))

    def play(*tasks, hosts="desk", answers=TABLE, **more):
        stand_in(tmp_path / "library" / "table", f"echo '{json.dumps(answers)}'")
        book = [{"hosts": hosts, "gather_facts": False, "tasks": list(tasks), **more}]
        (tmp_path / "play.yml").write_text(json.dumps(book))
        config = {
            "ANSIBLE_CALLBACK_PLUGINS": str(PLUGINS / "callback"),
            "ANSIBLE_LIBRARY": "library",
            "ANSIBLE_HOME": str(tmp_path / "home"),
            VARIABLE: str(tmp_path / "answer.json"),
        }
        done = subprocess.run(
            ["ansible-playbook", "-i", "hosts.yml", "play.yml"],
            cwd=tmp_path,
            env=os.environ | config,
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )
        print(done.stdout, done.stderr)
        return Answer.read(tmp_path / "answer.json"), done.returncode

    return play


def test_what_tasks_answer_and_say_is_the_answer(answer_of):
    answer, status = answer_of({"table": {}}, {"ansible.builtin.debug": {"msg": "and more"}})
    assert status == 0
    assert answer == Answer("good", {"nodes": {"desk": 1}}, "a table\n  and more", [])


def test_a_task_may_call_its_answer_degraded(answer_of):
    answer, status = answer_of({"table": {}}, answers=TABLE | {"verdict": "degraded"})
    assert (answer.verdict, status) == ("degraded", 0)


@pytest.mark.parametrize(
    ("failure", "verdict", "message"),
    [
        (ASSERT, "refused", "no such run"),
        (FAIL, "broken", "on fire"),
        (FAIL | {"no_log": True}, "broken", "secrets"),
    ],
)
def test_wrong_input_is_told_from_what_broke(answer_of, failure, verdict, message):
    answer, _ = answer_of({"table": {}}, failure)
    assert answer.verdict == verdict
    assert [error["node"] for error in answer.errors] == ["desk"]
    assert message in answer.errors[0]["message"]


@pytest.mark.parametrize(
    "task", [{"block": [FAIL], "rescue": [{"table": {}}]}, FAIL | {"ignore_errors": True}]
)
def test_a_failure_that_a_play_copes_with_is_none(answer_of, task):
    answer, status = answer_of(task)
    assert (answer.verdict, answer.errors, status) == ("good", [], 0)


@pytest.mark.parametrize(
    ("hosts", "ignored", "verdict"),
    [("all", True, "degraded"), ("all", False, "degraded"), ("gone", False, "broken")],
)
def test_a_node_that_does_not_answer_is_not_quite_well(answer_of, hosts, ignored, verdict):
    answer, _ = answer_of({"ansible.builtin.raw": "true"}, hosts=hosts, ignore_unreachable=ignored)
    assert answer.verdict == verdict
    assert [error["node"] for error in answer.errors] == ["gone"] * (not ignored)
