"""The commands of a node that print one JSON object."""

from __future__ import annotations

import json
import sys

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
