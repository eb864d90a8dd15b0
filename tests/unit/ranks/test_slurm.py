"""The ranks of a Slurm step, from variables as Debian's Slurm 22.05 sets them."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names, refuses

from hearth.base.errors import LaunchError
from hearth.ranks.slurm import STEP, first_host, is_step, left_alone, ranks, take_ranks

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "3"}


def task(rank: int = 0, nodes: str = "laptop,tower", *sizes: int, **more: str) -> dict[str, str]:
    """Return the variables of a task in a step of as many tasks a node, ranks in blocks."""
    sizes = sizes or (2, 1)
    node = next(n for n in range(len(sizes)) if rank < sum(sizes[: n + 1]))
    first = sum(sizes[:node])
    own = {
        "SLURM_STEP_ID": "1",
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_NUM_TASKS": str(sum(sizes)),
        "SLURM_STEP_NUM_NODES": str(len(sizes)),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank - first),
        "SLURM_GTIDS": ",".join(map(str, range(first, first + sizes[node]))),
    }
    return JOB | own | more


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 10**6))
def test_all_tasks_of_a_step_agree_on_the_world_and_each_has_a_place_of_its_own(sizes, job):
    found = [
        ranks(task(rank, "n[1-9]", *sizes, SLURM_JOB_ID=str(job))) for rank in range(sum(sizes))
    ]
    assert [each["RANK"] for each in found] == [str(rank) for rank in range(sum(sizes))]
    places = [f"{local} of {size}" for size in sizes for local in range(size)]
    assert [f"{each['LOCAL_RANK']} of {each['LOCAL_WORLD_SIZE']}" for each in found] == places
    for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", STEP):
        assert len({each[name] for each in found}) == 1
    assert found[0]["WORLD_SIZE"] == str(sum(sizes))
    # Not among the ports of outgoing connections (net.ipv4.ip_local_port_range), nor Slurm's 6817.
    assert 20_000 <= int(found[0]["MASTER_PORT"]) < 30_000


def test_steps_that_run_at_the_same_time_meet_at_ports_of_their_own():
    steps = [(job, step) for job in range(7, 107) for step in range(16)]
    ports = [
        ranks(task(SLURM_JOB_ID=str(job), SLURM_STEP_ID=str(step)))["MASTER_PORT"]
        for job, step in steps
    ]
    assert len({*ports}) == len(steps)


WORDS = st.from_regex(r"[a-z]{1,3}[a-z-]{0,2}", fullmatch=True)


@given(
    WORDS, st.integers(0, 90), st.integers(2, 9), st.integers(1, 4), st.sampled_from(["", "-ib"])
)
def test_the_first_host_of_a_list_is_found_however_slurm_shortens_it(name, first, count, wide, end):
    numbers = [f"{number:0{wide}}" for number in range(first, first + count)]
    host = f"{name}{numbers[0]}{end}"
    for shortened in (
        f"{name}[{numbers[0]}-{numbers[-1]}]{end}",
        f"{name}[{','.join(numbers)}]{end}",
        f"{name}[{numbers[0]},{numbers[1]}-{numbers[-1]}]{end},other[1-2]",
        ",".join(f"{name}{number}{end}" for number in numbers),
        host,
    ):
        assert first_host(shortened) == host
    assert (
        first_host(f"{name}[{numbers[0]}-{numbers[-1]}]u[3-5]{end}") == f"{name}{numbers[0]}u3{end}"
    )


@pytest.mark.parametrize(
    ("environment", "interactive"),
    [
        ({}, False),
        (JOB, False),  # a shell of salloc
        (JOB | {"SLURM_PROCID": "0", "SLURM_GTIDS": "0"}, False),  # the body of an sbatch file
        (task(), True),  # typed in a shell of srun --pty
        (task(RANK="0", WORLD_SIZE="2"), False),  # torchrun inside srun
    ],
    ids=["no Slurm", "salloc", "sbatch", "pty", "torchrun"],
)
def test_only_a_task_that_srun_itself_started_is_a_rank(environment, interactive):
    assert not is_step(environment, interactive)


def test_what_a_person_has_exported_is_kept():
    own = {"MASTER_ADDR": "10.0.0.5", "MASTER_PORT": "29500", "OMP_NUM_THREADS": "3"}
    assert own.items() <= ranks(task(SLURM_DISTRIBUTION="arbitrary", **own)).items()


@pytest.mark.parametrize(
    ("rank", "more", "threads"),
    [(0, {}, "1"), (2, {}, None), (2, {"SLURM_CPUS_PER_TASK": "8"}, "8")],
)
def test_ranks_of_one_node_share_its_cores(rank, more, threads):
    assert ranks(task(rank, **more)).get("OMP_NUM_THREADS") == threads


@pytest.mark.parametrize("more", [{"SLURM_DISTRIBUTION": "arbitrary"}, {"SLURM_HET_SIZE": "2"}])
def test_where_slurm_does_not_say_which_node_has_rank_0_the_cure_is_named(more):
    with refuses(LaunchError, "7.1", "MASTER_ADDR"):
        ranks(task(**more))
    assert ranks(task(0, "laptop", 3, **more))["MASTER_ADDR"] == "laptop"


@pytest.mark.parametrize(
    ("environment", "facts"),
    [
        (JOB, ["job 7", "2 nodes", "srun"]),
        (JOB | {"SLURM_JOB_NUM_NODES": "1"}, ["job 7", "3 tasks"]),
        (task(0, "laptop", 1), ["job 7", "2 nodes"]),  # srun -n1
        (task(), []),
        (task(RANK="0"), []),
        ({}, []),
        (JOB | {"SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "1"}, []),
    ],
)
def test_a_single_rank_in_a_job_of_more_is_said(environment, facts):
    warning = left_alone(environment, interactive=False)
    assert bool(warning) is bool(facts)
    assert_names(warning, *facts)


@pytest.fixture
def step(monkeypatch):
    """Let this process be a task on this computer, in place of srun, with these variables."""

    def be(**more: str) -> None:
        monkeypatch.setattr(os, "environ", task(nodes="localhost", **more))

    monkeypatch.setattr(os, "isatty", lambda _: False)
    return be


@pytest.mark.parametrize(
    ("brought", "found"),
    [
        ({}, ("lo", None)),
        ({"GLOO_SOCKET_IFNAME": "enp5s0x", "NCCL_SOCKET_IFNAME": "=enp5s0x"}, ("lo", "=lo")),
        ({"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "enp"}, ("lo", "enp")),
    ],
    ids=["nothing", "of another node", "of this node"],
)
def test_every_node_has_its_own_interface_whatever_srun_brings_from_another(step, brought, found):
    step(**brought)
    take_ranks()
    assert (os.environ["RANK"], os.environ["MASTER_ADDR"]) == ("0", "localhost")
    assert (os.environ["GLOO_SOCKET_IFNAME"], os.environ.get("NCCL_SOCKET_IFNAME")) == found


def test_a_node_without_a_name_is_named_with_the_one_that_does_not_know_it(step, monkeypatch):
    def unknown(*_):  # in place of a name server
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    step(SLURM_STEP_NODELIST="laptop")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with refuses(LaunchError, os.uname().nodename, "laptop", "7.1", "/etc/hosts"):
        take_ranks()


def test_a_port_that_is_taken_is_named_before_anything_is_loaded(step):
    with socket.create_server(("", 0)) as other:
        step(MASTER_PORT=str(other.getsockname()[1]))
        with refuses(LaunchError, str(other.getsockname()[1]), "MASTER_PORT"):
            take_ranks()
