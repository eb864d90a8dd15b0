"""Quiet imports: torchao's warnings about libraries for another CUDA are not shown."""

from __future__ import annotations

import logging

import pytest

from hearth.base.quiet import hush
from hearth.config import Settings
from hearth.config.layout import Layout
from hearth.model import load


@pytest.mark.parametrize("by", ["hush", "prime_backend"])
def test_torchao_warns_nobody(monkeypatch, caplog, by):
    torchao = logging.getLogger("torchao")
    monkeypatch.setattr(torchao, "level", logging.NOTSET)
    torchao.manager._clear_cache()

    def imported(name: str) -> None:
        torchao.warning("Failed to load %s: libcudart.so.12", name)

    if by == "hush":
        hush()
        imported("torchao")
    else:
        monkeypatch.setattr(load, "has_nvidia_gpu", lambda: True)
        monkeypatch.setattr(load, "backend_here", lambda settings, device: "unsloth")
        monkeypatch.setattr(load, "prepare_environment", lambda folder: None)
        monkeypatch.setattr(load.importlib, "import_module", imported)
        load.prime_backend(Settings(model="tiny", dataset="x.jsonl"), Layout.from_environment())
    assert caplog.messages == []
