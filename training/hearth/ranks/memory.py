"""Memory of this rank: limit, free and peak amounts, out-of-memory errors."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import torch

from hearth.base.errors import MachineError
from hearth.base.nvidia import CUDA, PYTHON, unified_share
from hearth.base.systems import under_windows
from hearth.base.text import brief, counted

GIB = 1 << 30

_OF_WINDOWS = 0.9
"""Fraction of a card's free memory that its ranks may use under Windows, whose own programs come
and go on it."""

_MMAP_THRESHOLD = -3
"""Of mallopt(3): least bytes of a block that is mapped apart from the heap."""

# Most libraries have no error class for it: torch's CPU allocator, CUDA itself, cuBLAS, Triton,
# Unsloth. (Triton's "out of resource" is a block of a kernel, not the card's memory.)
_MESSAGE = re.compile(
    r"can't allocate memory|not enough memory|std::bad_alloc|out of memory|_STATUS_ALLOC_FAILED"
    r"|negligible GPU memory",
    re.IGNORECASE,
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` is an out-of-memory error, of a GPU or of the computer."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(_MESSAGE.search(str(error)))


def limit_memory(gib: float) -> None:
    """Limit this process to `gib` GiB, so that exceeding it raises an error instead of swapping.

    The limit covers writable memory (RLIMIT_DATA), not the memory-mapped model file. Transformers
    then loads without threads: where one has no memory to begin with, who starts it waits for good.
    """
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    most = round(gib * GIB)
    resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def limit_gpu_memory(device: torch.device, ranks: int) -> None:
    """Limit one of `ranks` ranks on a GPU that would not raise an out-of-memory error by itself.

    An integrated GPU would take all of the computer's memory, which freezes the machine; its limit
    is that of the memory check, less what torch does not count. Under Windows (WSL) a full card
    spills into the computer's memory, and a step takes many times as long.
    """
    properties = torch.cuda.get_device_properties(device)
    if properties.is_integrated:
        part = unified_share(free_gib() * GIB, ranks) - PYTHON - CUDA
    elif under_windows(platform.release()):
        part = _OF_WINDOWS * torch.cuda.mem_get_info(device)[0] / ranks
    else:
        return
    part = max(part, 0) + torch.cuda.memory_reserved(device)
    fraction = min(part / properties.total_memory, 1.0)
    torch.cuda.set_per_process_memory_fraction(fraction, device)


def free_gib() -> float:
    """Return the free memory of this computer in GiB."""
    return psutil.virtual_memory().available / GIB


def row_too_large(tokens: int) -> MachineError:
    """Return the error for a single row of `tokens` tokens that does not fit into memory."""
    return MachineError(
        f"one row of {tokens} tokens does not fit into the memory of this rank; take a smaller "
        "sequence_length, gradient_checkpointing=on or, with LoRA, load_in_4bit=on"
    )


def too_large_together(rows: int) -> MachineError:
    """Return the error for `rows` rows at once that do not fit, with `parallel: fsdp`."""
    remedy = f"micro_batch={rows // 2}" if rows > 1 else "gradient_checkpointing=on"
    return MachineError(
        f"{counted(rows, 'row')} at once do{'es' * (rows == 1)} not fit into the memory of "
        "this rank, and with parallel=fsdp no rank can retry alone; resume with "
        f"{remedy}, or start a new run with a smaller sequence_length"
    )


def stage_too_large(stage: str, tokens: int, rows: int = 1) -> MachineError:
    """Return the error for `rows` rows of up to `tokens` tokens that do not fit a stage at once."""
    what, cure = f"one row of {tokens} tokens does not fit", "take"
    if rows > 1:
        what = f"{rows} rows of up to {tokens} tokens do not fit"
        cure = f"take a micro_batch below {rows},"
    return MachineError(
        f"{what} into the memory of {stage}; {cure} gradient_checkpointing=on, "
        "load_in_4bit=on or a smaller sequence_length, or give it fewer layers with split=…"
    )


def weights_too_large(part: str, error: Exception, remedies: str) -> MachineError:
    """Return the error for the weights of `part` that do not fit while they are loaded."""
    return MachineError(
        f"the weights of {part} do not fit into the memory of this rank ({brief(error)}); take "
        f"{remedies}"
    )


def release(device: torch.device) -> None:
    """Release the GPU memory that torch has cached."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def peak_mib(device: torch.device) -> float:
    """Return this rank's peak memory in MiB: GPU memory, or the process's memory on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


@contextmanager
def returning_memory() -> Iterator[None]:
    """Have freed blocks go back to the system at once, while a model is loaded and quantised.

    glibc keeps blocks of up to 32 MiB otherwise, once such a one was freed: more than a stage in 4
    bits holds. Afterwards it does so again, since training needs blocks of one size over and over.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):  # another C library
        yield
        return
    library.mallopt(_MMAP_THRESHOLD, 1 << 20)
    try:
        yield
    finally:
        library.mallopt(_MMAP_THRESHOLD, 32 << 20)
        library.malloc_trim(0)
