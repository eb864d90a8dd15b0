"""Tensors in safetensors files, each read when it is wanted.

The library maps a whole file into writable memory, and keeps the map for as long as one tensor of
it lives. A limit on the memory of a rank (RLIMIT_DATA) counts all of it, also the layers of others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
_LENGTH = 8
"""Bytes that hold the length of a file's header."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of `size` bytes from `start` in a file."""

    file: Path
    start: int
    size: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    def __getitem__(self, _: Any) -> torch.Tensor:
        """Return the tensor, read into memory of its own.

        Raises `OSError` if the file has been cut short since it was opened.
        """
        content = torch.empty(self.size, dtype=torch.uint8)
        with self.file.open("rb", buffering=0) as file:
            file.seek(self.start)
            left = memoryview(content.numpy())
            while left:
                if not (count := file.readinto(left)):
                    raise OSError(f"{self.file} ends before byte {self.start + self.size}")
                left = left[count:]
        return content.view(self.dtype).reshape(self.shape)


def stored_tensors(file: Path) -> dict[str, StoredTensor]:
    """Return the tensors in the safetensors file `file` by name, not read yet.

    Raises what the library raises, or `OSError`, if the file is not whole.
    """
    # Checks the header against the file's length. Read, not mapped: a process whose memory is
    # limited could not map a large file.
    with safe_open(file, "pt", backend="pread"):
        pass
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(_LENGTH), "little")
        header = json.loads(opened.read(length))
    found = {}
    for name, described in header.items():
        if name != "__metadata__":
            start, end = described["data_offsets"]
            dtype = _TYPES[described["dtype"]]
            begins = _LENGTH + length + start
            found[name] = StoredTensor(file, begins, end - start, tuple(described["shape"]), dtype)
    return found
