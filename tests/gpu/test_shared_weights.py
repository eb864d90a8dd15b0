"""A model divided over three ranks on one card: `parallel: pipeline` and `parallel: fsdp`.

Ranks that share a card exchange over gloo. In a home each has a card of its own, so here they also
claim to: NCCL takes them for ranks of three computers.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.llama import make_full_texts, make_llama
from support.ranks import SCRIPT, command, environment, figures, metrics

from hearth.config import read_run
from hearth.config.shape import shape_in
from hearth.fit.estimate import case_of, stage_estimate
from hearth.plan.makespan import in_flight

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]

RANKS = 3
LENGTH = 1024
NCCL = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
PIPELINE = ("--parallel", "pipeline", "--split", "2:1:1", "--micro-batch", 2)

# Each rank takes `GIB` of the card, and claims that it is a card of its own.
APART = f"""
import os, runpy, sys
import torch
import hearth.ranks.world
rank = os.environ["RANK"]
os.environ["NCCL_HOSTID"] = rank
hearth.ranks.world._gpu = lambda device: f"the {{device}} of rank {{rank}}"
if gib := os.environ.get("GIB"):
    part = float(gib) * (1 << 30) / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(part)
sys.argv[0] = {str(SCRIPT)!r}
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""


@pytest.fixture
def apart(tmp_path: Path, llama: Path, texts: Path, kernels: dict[str, str]) -> Callable:
    """Return a function that trains in three ranks, each as on a computer of its own.

    It returns the run's folder and log.
    """
    script = tmp_path / "apart.py"
    script.write_text(APART)

    def run(name: str, *changed: object, gib: float = 0) -> tuple[Path, str]:
        words = [
            *("--model", llama, "--dataset", texts, "--sequence-length", 512, "--held-out", 0),
            *("--learning-rate", 1e-3, "--global-batch", 8, "--optimizer", "adamw"),
            *(
                "--backend",
                "transformers",
                "--max-steps",
                8,
                "--wandb",
                "off",
                "--eval-held-out",
                "off",
            ),
            *("--run-name", name, *changed),
        ]
        started = command(RANKS, *words)
        started[started.index(str(SCRIPT))] = str(script)
        done = subprocess.run(
            started,
            cwd=tmp_path,
            env=environment(tmp_path) | kernels | NCCL | ({"GIB": str(gib)} if gib else {}),
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return tmp_path / "runs" / name, done.stdout

    return run


def losses(folder: Path) -> list[float]:
    return figures(folder, "step", "loss")


@pytest.mark.parametrize(
    ("how", "within"),
    [
        (("--precision", "fp32"), 1e-4),
        (("--precision", "bf16"), 1e-2),
        (("--precision", "fp16"), 1e-2),
        (("--precision", "bf16", "--load-in-4bit"), 1e-2),
        (("--precision", "bf16", "--load-in-8bit"), 1e-2),
    ],
    ids=["fp32", "bf16", "fp16", "4 bits", "8 bits"],
)
def test_three_stages_on_one_card_learn_what_one_process_learns(trained, how, within):
    common = ("--backend", "transformers", *how)
    alone, _ = trained("alone", 1, *common, "--micro-batch", 2)
    divided, _ = trained("divided", RANKS, *common, *PIPELINE)
    (start,) = metrics(divided, "start")
    assert start["gradients"] == "gloo"
    assert [each["layers"] for each in start["stages"]] == [[0, 2], [2, 3], [3, 4]]
    assert losses(divided) == pytest.approx(losses(alone), rel=within)


def test_stages_with_a_card_each_learn_what_one_process_learns(trained, apart):
    noise = ("--lora-dropout", 0.1, "--neftune", 5, "--gradient-checkpointing")
    common = ("--precision", "fp32", *noise, *PIPELINE)
    shared, _ = trained("shared", RANKS, "--backend", "transformers", *common)
    divided, _ = apart("apart", *common)
    assert figures(divided, "start", "gradients") == ["nccl"]
    assert losses(divided) == pytest.approx(losses(shared), rel=1e-6)


def test_a_pipeline_of_a_card_goes_on_with_other_layers_on_each_rank(trained):
    common = ("--backend", "transformers", "--precision", "fp32", "--optimizer", "adamw_8bit")
    alone, _ = trained("alone", 1, *common, "--micro-batch", 2)
    folder = alone.parent / "night"
    folder.mkdir()
    (folder / "stop").touch()
    trained("night", RANKS, *common, *PIPELINE)
    assert figures(folder, "end", "step") == [1]
    (folder / "stop").unlink()
    trained("night", 2, "--resume", "night", *common, "--split", "1:3")
    assert losses(folder) == pytest.approx(losses(alone), rel=1e-4)


def test_the_ranks_time_the_layers_on_the_card_and_place_them(trained):
    auto = ("--parallel", "pipeline", "--split", "auto", "--micro-batch", "auto")
    folder, _ = trained("auto", RANKS, "--backend", "transformers", *auto)
    (start,) = metrics(folder, "start")
    counts = [last - first for first, last in (each["layers"] for each in start["stages"])]
    assert sum(counts) == 4


def test_sharded_weights_learn_what_one_process_learns_over_nccl(trained, apart):
    how = ("--precision", "fp32", "--micro-batch", 2)
    alone, _ = trained("alone", 1, "--backend", "transformers", *how)
    folder, _ = apart("shards", *how, "--parallel", "fsdp", "--split", "2:1:1")
    (start,) = metrics(folder, "start")
    assert start["gradients"] == "nccl"
    assert max(start["weight_bytes_by_rank"]) < 0.5 * start["weight_bytes"]
    assert losses(folder) == pytest.approx(losses(alone), rel=1e-4)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 1.5 billion parameters, 2909 MiB in bf16 and 968 MiB in 4 bits."""
    shape = {"intermediate_size": 8192, "num_key_value_heads": 8, "vocab_size": 32000}
    folder = tmp_path_factory.mktemp("large") / "llama"
    return make_llama(folder, hidden=2048, layers=24, tie_word_embeddings=True, **shape)


@pytest.fixture
def work(tmp_path: Path, large: Path) -> list[object]:
    """Return the arguments of steps of 16 full rows, with eight layers a rank."""
    data = make_full_texts(tmp_path / "long.jsonl", 100, LENGTH)
    return [
        *("--model", large, "--dataset", data, "--sequence-length", LENGTH, "--precision", "bf16"),
        *("--parallel", "pipeline", "--split", "1:1:1", "--global-batch", 16, "--fit", "warn"),
    ]


def estimated_mib(model: Path, folder: Path, micro_batches: int) -> list[int]:
    """Return the estimated memory of each rank, without CUDA's context, which torch does not count.

    A step of the run has `micro_batches`.
    """
    settings = read_run(folder / "run.yml").settings
    shape, case = shape_in(model), case_of(settings, gpu=True, gpus=True, all_gpus=True, ranks=3)
    found = []
    for position, stage in enumerate(metrics(folder, "start")[0]["stages"]):
        start, stop = stage["layers"]
        need = stage_estimate(
            shape,
            case,
            stop - start,
            first=start == 0,
            last=stop == shape.num_hidden_layers,
            in_flight=in_flight(micro_batches, position, RANKS),
        )
        found.append((need.total - need.runtime) >> 20)
    return found


@pytest.mark.parametrize(("bits", "gib"), [(16, 2), (4, 1.25)])
def test_a_model_that_fits_no_card_is_trained_on_three(apart, large, work, keep, bits, gib):
    """A rank may allocate less than the weights take, or in 4 bits than training them all takes."""
    small = ("--micro-batch", 1, "--gradient-checkpointing", "--max-steps", 4)
    folder, said = apart("large", *work, *small, *["--load-in-4bit"] * (bits == 4), gib=gib)
    by_rank = zip(*figures(folder, "step", "peak_memory_mib_by_rank"), strict=True)
    peaks, estimated = list(map(max, by_rank)), estimated_mib(large, folder, 16)
    step = metrics(folder, "step")[-1]
    names = ("tokens_per_second", "compute_seconds_by_rank", "wait_seconds_by_rank")
    keep(
        f"1.5 billion parameters over three ranks, {bits} bits",
        {"peak_memory_mib": peaks, "estimated_memory_mib": estimated}
        | {name: step[name] for name in names},
    )
    assert "not fit" not in said
    # cuBLAS has buffers among torch's tensors, 32 MiB each on this card's kind.
    assert peaks == pytest.approx(estimated, rel=0.15, abs=160)


def test_stages_that_run_out_of_the_cards_memory_compute_fewer_rows_at_once(apart, work):
    crowded, said = apart("crowded", *work, "--max-steps", 2, "--micro-batch", 8, gib=8)
    assert "not fit" in said
    careful, said = apart("careful", *work, "--max-steps", 2, "--micro-batch", 1)
    assert "not fit" not in said
    assert losses(crowded) == pytest.approx(losses(careful), rel=1e-2)
