"""CUDA's order of the cards of a computer."""

from __future__ import annotations

import sys

import pytest
from support.programs import run

NAME = "CUDA_DEVICE_ORDER"


@pytest.mark.parametrize(("own", "order"), [("", "PCI_BUS_ID"), ("FASTEST_FIRST", "FASTEST_FIRST")])
def test_it_is_that_of_the_driver_unless_another_is_set(monkeypatch, own, order):
    monkeypatch.delenv(NAME, raising=False)  # this process has it once Hearth is imported
    shows = f"import hearth, os; print(os.environ['{NAME}'])"
    assert run(sys.executable, "-c", shows, **({NAME: own} if own else {})).stdout.strip() == order
