"""The start and the end of a program: its answer, and the order of the GPUs."""

from __future__ import annotations

import json
import sys

import pytest
from support.programs import run

from hearth.base.entry import run_verb
from hearth.base.errors import HearthError


def test_what_is_wrong_is_in_the_answer_and_in_the_status(monkeypatch, capsys):
    def refuse(run_file, spec):
        print("on the way")
        raise HearthError("no such run")

    monkeypatch.setattr(sys, "argv", ["command", "look"])
    assert run_verb({"look": refuse}) == 2
    assert json.loads(capsys.readouterr().out) == {"facts": {}, "findings": ["no such run"]}
    assert run_verb({"look": lambda run_file, spec: {"facts": {"spec": spec}}}) == 0
    assert json.loads(capsys.readouterr().out) == {"facts": {"spec": {}}, "findings": []}


NAME = "CUDA_DEVICE_ORDER"


@pytest.mark.parametrize(("own", "order"), [("", "PCI_BUS_ID"), ("FASTEST_FIRST", "FASTEST_FIRST")])
def test_it_is_that_of_the_driver_unless_another_is_set(monkeypatch, own, order):
    monkeypatch.delenv(NAME, raising=False)  # this process has it once Hearth is imported
    shows = f"import hearth, os; print(os.environ['{NAME}'])"
    assert run(sys.executable, "-c", shows, **({NAME: own} if own else {})).stdout.strip() == order
