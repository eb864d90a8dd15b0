"""Tensors of a safetensors file, read one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from hearth.model.stored_tensor import stored_tensors

TENSORS = {
    "whole": torch.arange(24, dtype=torch.float32).reshape(2, 3, 4),
    "half": torch.arange(5, dtype=torch.bfloat16),
    "scalar": torch.tensor(7),
    "none": torch.zeros(0, 3, dtype=torch.float16),
    "flags": torch.tensor([True, False]),
}


@pytest.fixture
def file(tmp_path):
    save_file(TENSORS, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path / "model.safetensors"


def test_tensors_are_read_as_they_were_written(file):
    stored = stored_tensors(file)
    assert stored.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        read = stored[name][...]
        assert read.dtype == tensor.dtype
        assert torch.equal(read, tensor)


def test_the_file_is_not_mapped_while_a_tensor_lives(file):
    read = stored_tensors(file)["whole"][...]
    assert str(file) not in Path("/proc/self/maps").read_text()
    assert read.numel() == 24


def test_a_file_that_is_not_whole_is_refused(file):
    stored = stored_tensors(file)
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises((SafetensorError, OSError)):
        stored_tensors(file)
    with pytest.raises(OSError, match="ends before"):
        [each[...] for each in stored.values()]
