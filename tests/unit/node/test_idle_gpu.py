"""A run by hand on a computer whose NVIDIA GPU does not answer. Bus and torch are stand-ins."""

from __future__ import annotations

import pytest

from hearth.node import prepare


@pytest.mark.parametrize(
    ("cards", "usable", "warned"), [(1, False, True), (1, True, False), (0, False, False)]
)
def test_training_on_the_processor_beside_a_gpu_is_not_silent(monkeypatch, cards, usable, warned):
    monkeypatch.setattr(prepare, "nvidia_cards", lambda: cards)
    monkeypatch.setattr(prepare, "has_nvidia_gpu", lambda: usable)
    said: list[str] = []
    prepare.warn_of_idle_gpu(said.append)
    assert ["processor" in line and "GPU" in line for line in said] == [True] * warned
