"""Programs by hand under plain srun, on three machines of the lab with Slurm."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.facts import assert_names
from support.lab import PYTHON, as_user, bring, machines, on, row
from support.ranks import SCRIPT, arguments_of
from support.supervisors import TRAINING

from hearth.ranks.slurm import first_host

pytestmark = [pytest.mark.lab, pytest.mark.rotated("programs under plain srun")]

NODES = ("laptop", "oldbox", "tower")  # in Slurm's order: laptop has rank 0
SCRIPTS = Path(__file__).resolve().parents[1] / "fixtures" / "scripts"
UNDER_SRUN = TRAINING / "under_srun.py"
# As a shell that `provision.yml` has prepared brings it along to machines with other interfaces.
SHELL = "cd && export HF_HUB_OFFLINE=1 GLOO_SOCKET_IFNAME=enp5s0 && "


@pytest.fixture(scope="module", autouse=True)
def cluster(tiny_model, tiny_data) -> Iterator[None]:
    with machines(3, "--slurm"):
        for folder in (TRAINING, SCRIPTS, tiny_model, tiny_data.parent):
            bring(folder, NODES)
        yield


@pytest.fixture
def typed(tiny_model, tiny_data) -> list[str]:
    """Return the command of a run of Hearth's by hand, which the run's name follows."""
    settings = {"model": tiny_model, "dataset": tiny_data, "max_steps": 4, "split": "2:1:1"}
    few = {"micro_batch": 1, "global_batch": 8, "sequence_length": 64, "eval_held_out": False}
    return [str(SCRIPT), *arguments_of(settings | few), "--run-name"]


def started(launcher: str, *program: object) -> str:
    """Type a launcher and a Python program on tower; return the output."""
    words = shlex.join([PYTHON, *map(str, program)])
    return on("tower", f"{SHELL} {launcher} {words} 2>&1")


def metrics(node: str, run: str, kind: str) -> list[dict]:
    """Return a run's records of one kind, as they lie in the home of a node."""
    lines = as_user(node, f"cat runs/{run}/metrics.jsonl").splitlines()
    return [record for line in lines if (record := json.loads(line))["kind"] == kind]


def test_slurm_has_three_idle_nodes_and_starts_a_task_on_each():
    assert {row(node)[-2] for node in NODES} == {"idle"}
    assert sorted(on("tower", "cd && srun -N3 hostname").split()) == [*NODES]
    for nodes in ("tower", "gpu[007-012,3],tower", "b-[10,2]-ib[0-2],tower"):
        assert first_host(nodes) == on("tower", f"scontrol show hostnames '{nodes}'").split()[0]


def test_hearth_trains_on_three_machines_with_nothing_but_srun_before_it(typed):
    screen = started("srun -N3", *typed, "three")
    assert_names(screen, "step 4/4", "finished: /home/lab/runs/three")
    start, *_ = metrics("laptop", "three", "start")
    assert start["world_size"] == 3
    assert {record["rows_by_rank"][0] for record in metrics("laptop", "three", "step")} == {4}
    for node in NODES:
        assert as_user(node, "ls runs/three/run.yml") == "runs/three/run.yml"


def test_unequal_tasks_a_node_learn_what_torchruns_ranks_learn(typed):
    started("srun -n3 -w laptop,tower", *typed, "unequal")
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3")
    started("srun -N1 -w tower", *torchrun, *typed, "torchrun")
    ours, theirs = metrics("laptop", "unequal", "step"), metrics("tower", "torchrun", "step")
    assert len(ours) == 4
    for name in ("loss", "grad_norm", "rows_by_rank"):
        assert [each[name] for each in ours] == [each[name] for each in theirs]


@pytest.mark.parametrize(
    ("script", "arguments", "told"),
    [
        ("lightning", "--nodes 3 --epochs 2 --out lightning", "rank {} of 3: loss"),
        ("plain", "--steps 3 --out plain", ""),
    ],
)
def test_scripts_of_people_who_know_nothing_of_hearth_run_as_they_are(script, arguments, told):
    its = (UNDER_SRUN, SCRIPTS / script / "train.py", *arguments.split())
    screen = started("srun -N3 --ntasks-per-node=1", *its)
    if told:
        lines = [line for line in screen.splitlines() if "of 3: loss" in line]
        assert len({line.split("loss ")[1] for line in lines}) == 1
        assert_names(screen, *(told.format(rank) for rank in range(3)))
    else:
        found = [
            json.loads(as_user(node, f"cat plain/rank{n}.json")) for n, node in enumerate(NODES)
        ]
        assert len({each["weights"] for each in found}) == 1
        cards = ["wlp0s20f3", "eno1", "enp5s0"]
        assert [each["GLOO_SOCKET_IFNAME"] for each in found] == cards


@pytest.mark.parametrize(
    ("typed", "ranks", "warns"),
    [
        ("salloc -N3 {}", ["None"], True),
        ("script -qc 'salloc -N3 srun --pty {}' /dev/null", ["None"], True),
        ("salloc -N3 srun -N1 -n1 {}", ["0"], True),
        ("salloc -N3 srun -u {}", ["0", "1", "2"], False),
    ],
    ids=["a shell of salloc", "a shell of srun --pty", "srun -n1", "srun"],
)
def test_what_srun_did_not_start_as_one_of_several_tasks_is_one_rank_and_says_so(
    typed, ranks, warns
):
    for node in NODES:
        as_user(node, "cat >rank.py", given=b"import os; print('rank', os.environ.get('RANK'))")
    screen = on("tower", f"{SHELL} {typed.format(f'{PYTHON} {UNDER_SRUN} rank.py')} 2>&1")
    found = re.findall(r"rank (None|\d+)", screen)  # a terminal may put a NUL before the line
    assert sorted(found)[-len(ranks) :] == ranks
    assert ("3 nodes" in screen) is warns
