"""The temperature of the computing device, where it can be read."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import torch

from hearth.ranks.temperature import celsius

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


def test_the_warmest_place_of_the_processor_counts(monkeypatch):
    found = {
        "nvme": [SimpleNamespace(current=90.0)],
        "coretemp": [SimpleNamespace(current=each) for each in (51.0, 63.0, 58.0)],
    }
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: found)
    assert celsius(CPU) == 63.0


def test_of_a_gpu_torch_is_asked(monkeypatch):
    monkeypatch.setattr(torch.cuda, "temperature", {GPU: 71}.__getitem__)  # a stand-in of a GPU
    assert celsius(GPU) == 71.0


def test_what_cannot_be_told_ends_no_run(monkeypatch):
    def broken(*_):
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed")

    monkeypatch.setattr(torch.cuda, "temperature", broken)
    monkeypatch.setattr(psutil, "sensors_temperatures", dict)
    assert celsius(GPU) == celsius(CPU) == 0.0
