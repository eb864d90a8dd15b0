"""The `hearth` command of this checkout, with a recorder in the place of ansible-playbook."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.programs import stand_in

from hearth_controller.cli import main

Hearth = Callable[..., tuple[int, str, str]]
"""Runs a command line; returns its exit status, its output and its errors."""


@pytest.fixture(autouse=True)
def no_inventory_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANSIBLE_INVENTORY", raising=False)
    monkeypatch.setattr("hearth_controller.cli.place.IN_USE", Path("no-inventory-in-use"))


@pytest.fixture
def hearth(capfd: pytest.CaptureFixture[str]) -> Hearth:
    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            status = int(ended.code or 0)
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture
def playing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Let a stand-in of ansible-playbook leave an answer; returns the file of its arguments."""

    def play(answer: dict[str, Any] | None = None, prints: str = "", status: int = 0) -> Path:
        typed, left = tmp_path / "typed", tmp_path / "left.json"
        lines = [f'printf "%s\\n" "$PWD" "$@" >{typed}', f"printf '%s' '{prints}'"]
        if answer is not None:
            left.write_text(json.dumps(answer))
            lines.append(f'cp {left} "$HEARTH_ANSWER"')
        stand_in(tmp_path / "bin" / "ansible-playbook", "\n".join([*lines, f"exit {status}"]))
        monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
        return typed

    return play
