"""A lab that tests left up when they were killed, and the tests after them."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from support import lab


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Have a lab be up without a holder; return the calls of scripts/lab from now on."""
    made: list[tuple[str, ...]] = []
    monkeypatch.setattr(lab, "lab", lambda *words, **_: made.append(words))
    monkeypatch.setattr(lab, "STATE", tmp_path)
    monkeypatch.setattr(lab, "_LOCK", tmp_path / "lock")
    monkeypatch.setattr(lab, "_HELD", [])
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda command: command)
    for variable in ("CI", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(variable, raising=False)
    return made


@pytest.mark.parametrize("variable", ["CI", "PYTEST_XDIST_WORKER"])
def test_what_killed_tests_left_does_not_keep_others_from_the_lab(calls, monkeypatch, variable):
    monkeypatch.setenv(variable, "true")
    lab.need_the_lab()
    assert calls == [("down",)]


def test_a_lab_of_a_person_stays(calls):
    with pytest.raises(pytest.skip.Exception, match="a lab is up already"):
        lab.need_the_lab()
    assert not calls


def test_tests_beside_others_do_not_take_their_lab(calls, monkeypatch, tmp_path):
    monkeypatch.setenv("CI", "true")
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(pytest.fail.Exception, match="other tests that are under way have"):
            lab.need_the_lab()
    assert not calls
