"""How much memory this rank has and uses, and whether an error says that there was too little."""

from __future__ import annotations

import resource

import psutil
import torch

from hearth.base.errors import HearthError

GIB = 1 << 30

# What torch's allocator for CPUs says: it has no error class of its own.
_CPU_MESSAGES = ("can't allocate memory", "not enough memory", "std::bad_alloc")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that memory was too small, of a GPU or of the computer."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _CPU_MESSAGES)


def limit_memory(gib: float) -> None:
    """Let this process allocate no more than `gib`, so that too much is an error and not swap.

    Counts what it writes to (RLIMIT_DATA), not the model's file that is mapped.
    """
    most = round(gib * GIB)
    resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def free_gib() -> float:
    """Return how much memory of this computer is free, in GiB."""
    return psutil.virtual_memory().available / GIB


def row_too_large(tokens: int) -> HearthError:
    """Return the error that ends a run where not even one row of so many tokens fits."""
    return HearthError(
        f"one row of {tokens} tokens does not fit into the memory of this rank; take a smaller "
        "sequence_length, gradient_checkpointing=true or, with LoRA, load_in_4bit=true"
    )


def too_large_together(rows: int) -> HearthError:
    """Return the error that ends a run with `parallel: fsdp` where so many rows did not fit."""
    way_out = f"micro_batch={rows // 2}" if rows > 1 else "gradient_checkpointing=true"
    return HearthError(
        f"{rows} row{'s' * (rows != 1)} at once do{'es' * (rows == 1)} not fit into the memory of "
        "this rank, and with parallel=fsdp no rank can compute its rows again by itself; go on "
        f"with resume and {way_out}, or begin anew with a smaller sequence_length"
    )


def release(device: torch.device) -> None:
    """Give back what torch keeps of a GPU's memory for later."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def peak_mib(device: torch.device) -> float:
    """Return the most memory this rank has used: of the GPU, or of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
