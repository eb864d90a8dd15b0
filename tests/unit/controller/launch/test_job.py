"""The batch script of a run, as text and as bash runs it with a stand-in of srun."""

from __future__ import annotations

import subprocess

import pytest
from support.programs import stand_in

from hearth_controller.launch.spec import job_script

NODES = {"desk": "tower", "laptop": "laptop"}


def script(tmp_path, gpus=(0, 0), options=(), elastic=False) -> str:
    specs = {
        name: {
            "workspace": str(tmp_path / f"my {name}"),
            "python": str(tmp_path / "a python"),
            "elastic": elastic,
        }
        for name in NODES
    }
    return job_script("evening", specs, NODES, dict(zip(NODES, gpus, strict=True)), options)


def options_of(text: str) -> list[str]:
    return [line.split()[1] for line in text.splitlines() if line.startswith("#SBATCH ")]


@pytest.mark.parametrize(
    ("given", "there", "absent"),
    [
        ({}, ["--nodes=2", "--nodelist=tower,laptop", "--exclusive", "--requeue"], ["gpu", "no-k"]),
        ({"gpus": (4, 4)}, ["--gpus-per-node=4"], []),
        ({"gpus": (4, 2)}, ["--gpus=6"], ["--gpus-per"]),
        ({"gpus": (4, 4), "options": ["--gres=gpu:1"]}, ["--gres=gpu:1"], ["--gpus"]),
        ({"options": ["--cpus-per-task=4", "--mem=8G"]}, ["--mem=8G"], ["--exclusive", "--mem=0"]),
        ({"options": ["--no-requeue"]}, ["--no-requeue"], ["--requeue"]),
        ({"elastic": True}, ["--no-kill"], []),
    ],
)
def test_a_job_asks_for_its_nodes_and_only_for_gpus_that_they_have(tmp_path, given, there, absent):
    options = options_of(script(tmp_path, **given))
    assert {*there} <= {*options}
    assert not [each for each in options if each.startswith(tuple(absent))]


def test_the_job_starts_on_each_node_the_supervisor_of_its_own_workspace(tmp_path):
    file = tmp_path / "job.sbatch"
    file.write_text(script(tmp_path))
    results = tmp_path / "my laptop" / "results" / "evening"  # the first node is not rank 0's
    results.mkdir(parents=True)
    stand_in(tmp_path / "a python", 'echo "$PYTHONPATH: $*"')
    # srun hands its last two words to each node's bash.
    tasks = 'for node in tower laptop; do SLURMD_NODENAME=$node bash -c "${7}"; done'
    stand_in(tmp_path / "programs" / "srun", tasks)
    path = f"{tmp_path / 'programs'}:/usr/bin:/bin"
    subprocess.run(["bash", str(file)], env={"PATH": path}, check=True, timeout=30)
    assert (results / "job.log").read_text().splitlines() == [
        f"{tmp_path}/my {name}/scripts: -m hearth.supervisor run --spec "
        f"{tmp_path}/my {name}/config/evening.json"
        for name in NODES
    ]
