"""Out-of-memory errors in the words of each library, and errors that only resemble them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from support.ranks import python, succeeded

from hearth.ranks.memory import GIB, is_out_of_memory, limit_gpu_memory


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        MemoryError(),
        *map(
            RuntimeError,
            [
                "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory",
                "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
                "CUDA driver error: out of memory",
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
                "Triton Error [CUDA]: out of memory",
                "Unsloth: No or negligible GPU memory available for fused cross entropy.",
            ],
        ),
    ],
    ids=str,
)
def test_an_error_of_memory_is_known_in_each_librarys_words(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("out of resource: shared memory, Required: 114944, Hardware limit: 101376."),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        ValueError("out of memory"),
    ],
    ids=str,
)
def test_other_errors_are_not_of_memory(error):
    assert not is_out_of_memory(error)


WSL = "6.6.87.2-microsoft-standard-WSL2"


@pytest.mark.parametrize(
    ("integrated", "kernel", "limit"),
    [(1, "6.17.0", 0.8 * 80 / 2 - 1.16), (0, "6.17.0", None), (0, WSL, 0.9 * 60 / 2)],
)
def test_ranks_end_where_a_gpu_would_freeze_the_machine_or_spill_into_its_memory(
    monkeypatch, integrated, kernel, limit
):
    """All that CUDA calls free is the computer's, or Windows'."""
    card = SimpleNamespace(total_memory=120 * GIB, is_integrated=integrated)
    set_to: list[float] = []
    for name, stand_in in {
        "get_device_properties": lambda _: card,
        "memory_reserved": lambda _: 0,
        "mem_get_info": lambda _: (60 * GIB, 120 * GIB),
        "set_per_process_memory_fraction": lambda fraction, _: set_to.append(fraction),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr("hearth.ranks.memory.free_gib", lambda: 80.0)
    monkeypatch.setattr("platform.release", lambda: kernel)
    limit_gpu_memory(torch.device("cuda", 0), ranks=2)
    assert set_to == ([] if limit is None else [pytest.approx(limit / 120, abs=1e-4)])


NO_THREADS = """
import sys
import transformers.core_model_loading as loading
from hearth.ranks.memory import limit_memory

def none(*_, **__):
    raise AssertionError("a thread was wanted")

limit_memory(64)
loading.ThreadPoolExecutor = none
from transformers import AutoModelForCausalLM
AutoModelForCausalLM.from_pretrained(sys.argv[1])
"""


def test_a_model_is_loaded_without_threads_where_memory_is_limited(tiny_model, tmp_path):
    """One that has no memory to begin with would be waited for without end."""
    succeeded(python(tmp_path, "-c", NO_THREADS, tiny_model))
