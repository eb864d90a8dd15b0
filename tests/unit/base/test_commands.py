"""Commands that fail, hang or do not exist."""

from __future__ import annotations

from support.facts import assert_names

from hearth.base.commands import NOT_RUN, TIMED_OUT, output, run


def test_a_command_that_cannot_be_run_or_hangs_is_told_by_its_status():
    assert run("hearth-of-nowhere").returncode == NOT_RUN
    hung = run("sleep", "60", seconds=0.1)
    assert hung.returncode == TIMED_OUT
    assert_names(hung.stderr, "0.1 s")


def test_a_command_has_the_c_locale_and_roots_path_unless_its_environment_is_given(monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    said = output("env", MORE="1").splitlines()
    assert {"LC_ALL=C", "MORE=1"} <= set(said)
    assert any(line.startswith("PATH=") and line.endswith(":/usr/sbin:/sbin") for line in said)
    assert run("env", environment={"ONLY": "this"}).stdout == "ONLY=this\n"


def test_a_command_that_fails_has_no_output():
    assert output("sh", "-c", "echo half; exit 3") == ""
