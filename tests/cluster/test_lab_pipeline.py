"""A model that no machine has memory for: three of them train it, and its adapter answers.

One machine has its files, which is not that of rank 0.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cached_model import ID, make_cached_shards
from support.facts import assert_names
from support.lab import PYTHON, READY, Controller, as_root, bring, lab, machines, of_the_first, on
from support.llama import make_texts
from support.runs import end, lines

from hearth.config import Run, read_run
from hearth.config.shape import shape_in
from hearth.fit.capacity import GIB, Room
from hearth.fit.home import Candidate, home_of
from hearth.plan.makespan import in_flight
from hearth.plan.placement import Placement
from hearth_lab import plan

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.rotated]

NODES = tuple(node.name for node in plan.nodes(3))
HOLDER = "laptop"
LAYERS = 32
SIZES = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
}
"""In fp32 1.53 GiB of weights."""
MACHINE = 1.5
"""GiB that all of a machine may take, its supervisor and its files in the cache included."""
RANK = 1.35
"""GiB that a rank may take."""
WITHIN = 0.15
MICRO_BATCHES = 6


@pytest.fixture(scope="module")
def model() -> Iterator[Path]:
    """The model in a cache that is at the same place on each machine."""
    # Not below /tmp, which a machine has for itself.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="hearth-test-") as folder:
        yield make_cached_shards(Path(folder), LAYERS, **SIZES)


@pytest.fixture(scope="module")
def home(tmp_path_factory, model) -> Iterator[Controller]:
    """A controller, and three machines, one with a model that is larger than their memory."""
    folder = tmp_path_factory.mktemp("home")
    data = make_texts(folder / "texts.jsonl", 32, 64)
    controller = Controller(folder, model, data, of_the_first(len(NODES), folder / "inventory"))
    with machines(len(NODES)):
        controller.play(
            "playbooks/provision/preflight.yml", "playbooks/provision/workspace.yml", *READY
        )
        bring(model.parent, [HOLDER])
        as_root(HOLDER, f"chown -R lab: {model.parent}")
        for node in NODES:
            lab("memory", node, str(MACHINE))
        yield controller


def estimated_mib(model: Path, run: Run, stages: list[dict]) -> list[float]:
    """Return the estimated memory of each rank of a run whose layers are placed like this."""
    shape = shape_in(model)
    assert shape
    ranks = [Candidate(node, Room(round(RANK * GIB))) for node in NODES]
    home = home_of(run.settings, shape, ranks)
    ranges = [stage["layers"] for stage in stages]
    placement = Placement.of(
        [stage["rank"] for stage in stages], [last - first for first, last in ranges]
    )
    return [
        home.need(
            rank,
            len(placement.stages[position].layers),
            first=position == 0,
            last=position == len(NODES) - 1,
            in_flight=in_flight(MICRO_BATCHES, position, len(NODES)),
            rows=1,
        )
        / 2**20
        for rank in range(len(NODES))
        if (position := placement.position(rank)) is not None
    ]


def files_of(layers: range) -> set[str]:
    """Return the files of the model with these layers, and at an end of it those of the end."""
    ends = [0] * (layers.start == 0) + [LAYERS + 1] * (layers.stop == LAYERS)
    return {f"part-{piece}.safetensors" for piece in (*(layer + 1 for layer in layers), *ends)}


def test_what_fits_no_machine_is_trained_over_all_merged_and_answers(home):
    run, model = "large", home.model
    weights = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    assert weights > MACHINE * 2**30
    takes = f"""{PYTHON} -c 'b"x" * {weights}' && echo enough || echo ended"""
    assert on("tower", takes).startswith("ended"), "the machine is not held to its memory"
    own = {
        **{"model": ID, "memory_limit": RANK, "max_steps": 4, "eval_held_out": False},
        **{"global_batch": MICRO_BATCHES, "micro_batch": 1, "sequence_length": 64},
        "precision": "fp32",
    }
    words = (*READY, "-e", f"run={run}", "-e", f"hearth_models={model.parent}")
    try:
        said = home.play("train.yml", *words, *home.tiny(split="auto", **own))
        assert_names(said, "parallel=auto: pipeline", *NODES)
        record = lines("tower", run)
        stages = next(line for line in record if line["kind"] == "start")["stages"]
        steps = [line for line in record if line["kind"] == "step"]
        for stage in stages:
            if (node := NODES[stage["rank"]]) != HOLDER:
                has = on(node, f"cd {model} && ls *.safetensors").split()
                assert {*has} == files_of(range(*stage["layers"]))
        assert len(steps) == own["max_steps"]
        assert steps[-1]["loss"] < steps[0]["loss"]
        estimated = estimated_mib(model, read_run(home.runs / run / "run.yml"), stages)
        taken = steps[-1]["peak_memory_mib_by_rank"]
        print(f"MiB taken {taken}, estimated {estimated}")
        for peak, estimate in zip(taken, estimated, strict=True):
            assert abs(peak / estimate - 1) < WITHIN
        home.play("playbooks/export.yml", *words, "-e", "to=merged")
        assert len([*(home.runs / run / "export").rglob("*.safetensors")]) > LAYERS
        said = home.play("playbooks/chat.yml", *words)
        talk = re.search(r"talk to it +ssh .+ '(env .+)'", said)
        assert talk, said
        answer = on(HOLDER, f"echo say 1 | {talk[1]} --max-tokens 2")
        assert "(2 tokens" in answer, answer
    finally:
        end(NODES, [run])
        for node in NODES:
            lab("memory", node, "off")
