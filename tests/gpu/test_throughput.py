"""Tokens a second, and memory, of both backends: printed, and kept as a figure."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from support.llama import make_llama, make_texts
from support.ranks import figures, metrics

from hearth.config import read_run
from hearth.config.shape import shape_in
from hearth.fit.estimate import case_of, estimate

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]

LENGTH = 1024
SKIPPED = 4  # steps that pay for compiling


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A model of 1.2 billion parameters with the shape of Llama 3.2 1B."""
    shape = {"intermediate_size": 8192, "num_key_value_heads": 8, "vocab_size": 128256}
    folder = tmp_path_factory.mktemp("large") / "llama"
    return make_llama(folder, hidden=2048, layers=16, tie_word_embeddings=True, **shape)


def estimated_mib(model: Path, folder: Path, micro_batch: int) -> int:
    """Return the estimated memory of a run, without CUDA's context, which torch does not count."""
    settings = read_run(folder / "run.yml").settings.model_copy(update={"micro_batch": micro_batch})
    case = case_of(settings, gpu=True, gpus=True, all_gpus=True, ranks=1)
    found = estimate(shape_in(model), case)
    return (found.total - found.runtime) >> 20


def test_unsloth_is_no_slower_than_transformers(trained, large, tmp_path, keep):
    data = make_texts(tmp_path / "long.jsonl", 400, LENGTH)
    speeds = {}
    for backend in ("unsloth", "transformers"):
        folder, _ = trained(
            backend,
            1,
            *("--backend", backend, "--precision", "bf16", "--model", large, "--dataset", data),
            *("--sequence-length", LENGTH, "--global-batch", 16, "--max-steps", SKIPPED + 8),
            *("--micro-batch", "auto"),
        )
        speeds[backend] = statistics.median(figures(folder, "step", "tokens_per_second")[SKIPPED:])
        micro_batch = metrics(folder, "plan")[-1]["micro_batch"][0]
        keep(
            f"{backend}, 1.2 billion parameters",
            {
                "tokens_per_second": speeds[backend],
                "micro_batch": micro_batch,
                "peak_memory_mib": max(figures(folder, "step", "peak_memory_mib_by_rank"))[0],
                "estimated_memory_mib": estimated_mib(large, folder, micro_batch),
            },
        )
    assert speeds["unsloth"] >= speeds["transformers"]
