"""A model that no machine has memory for: three of them train it, and what it learned answers."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.facts import assert_names
from support.lab import PYTHON, READY, Controller, bring, lab, machines, of_the_first, on
from support.llama import make_texts
from support.runs import end, lines
from support.tiny_model import make_model

from hearth.config import Run, read_run
from hearth.config.shape import shape_in
from hearth.fit.capacity import GIB, Room
from hearth.fit.home import Candidate, home_of
from hearth.plan.makespan import in_flight
from hearth.plan.placement import Placement
from hearth_lab import plan

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.rotated(seconds=200)]

NODES = tuple(node.name for node in plan.nodes(3))
SIZES = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 32,
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
def kept() -> Iterator[Path]:
    """A folder that is at the same place on each machine."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="hearth-test-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def home(tmp_path_factory, kept) -> Iterator[Controller]:
    """A controller, and three machines with a model that is larger than their memory."""
    folder = tmp_path_factory.mktemp("home")
    model = make_model(kept / "large", **SIZES)
    data = make_texts(folder / "texts.jsonl", 32, 64)
    house = Controller(folder, model, data, of_the_first(len(NODES), folder / "inventory"))
    with machines(len(NODES)):
        house.play("playbooks/preflight.yml", "playbooks/workspace.yml", *READY)
        bring(model, NODES)
        for node in NODES:
            lab("memory", node, str(MACHINE))
        yield house


def estimated_mib(run: Run, stages: list[dict]) -> list[float]:
    """Return the estimated memory of each rank of a run whose layers are placed like this."""
    shape = shape_in(Path(run.settings.model))
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


def test_what_fits_no_machine_is_trained_over_all_merged_and_answers(home):
    run = "large"
    weights = sum(file.stat().st_size for file in home.model.glob("*.safetensors"))
    assert weights > MACHINE * 2**30
    takes = f"""{PYTHON} -c 'b"x" * {weights}' && echo enough || echo ended"""
    assert on("tower", takes).startswith("ended"), "the machine is not held to its memory"
    own = {
        **{"memory_limit": RANK, "max_steps": 4, "global_batch": MICRO_BATCHES, "micro_batch": 1},
        **{"sequence_length": 64, "evaluate": False, "precision": "fp32"},
    }
    try:
        said = home.play("train.yml", *READY, "-e", f"run={run}", *home.tiny(split="auto", **own))
        assert_names(said, "parallel=auto: pipeline", *NODES)
        record = lines("tower", run)
        stages = next(line for line in record if line["kind"] == "start")["stages"]
        steps = [line for line in record if line["kind"] == "step"]
        assert len(steps) == own["max_steps"]
        assert steps[-1]["loss"] < steps[0]["loss"]
        estimated = estimated_mib(read_run(home.runs / run / "run.yml"), stages)
        taken = steps[-1]["peak_memory_mib_by_rank"]
        print(f"MiB taken {taken}, estimated {estimated}")
        for peak, estimate in zip(taken, estimated, strict=True):
            assert abs(peak / estimate - 1) < WITHIN
        home.play("playbooks/export.yml", *READY, "-e", f"run={run}", "-e", "to=merged")
        assert any((home.runs / run / "export").rglob("*.safetensors"))
        said = home.play("playbooks/chat.yml", *READY, "-e", f"run={run}")
        talk = re.search(r"talk to it +ssh .+ '(env .+)'", said)
        assert talk, said
        answer = on("tower", f"echo say 1 | {talk[1]} --max-tokens 2")
        assert answer.count("(2 tokens") == 2, answer
    finally:
        end(NODES, [run])
        for node in NODES:
            lab("memory", node, "off")
