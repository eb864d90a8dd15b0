"""A pause, which makes room for a node that is back, and the stop that a person asks for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from hearth.supervise import supervisor
from hearth.supervise.messages import Pause


@pytest.mark.parametrize("asked", ["stop\n", "now\n", ""])
def test_a_pause_leaves_a_stop_that_was_just_asked_for(tmp_path, asked):
    laid = tmp_path / "stop"
    laid.write_text(asked)
    pause(laid)
    assert laid.read_text() == asked


def test_a_pause_is_laid_where_nobody_asked_for_anything(tmp_path):
    pause(tmp_path / "stop")
    assert (tmp_path / "stop").read_text() == supervisor.PAUSE


def pause(stop_file):
    """Have a supervisor hear of a pause, before it has looked at its stop file again."""
    heard = object.__new__(supervisor._Supervisor)
    heard._spec, heard._say = SimpleNamespace(stop_file=stop_file), print
    asyncio.run(heard._handle(Pause()))
