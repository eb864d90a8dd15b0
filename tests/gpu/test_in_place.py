"""Ranks that form groups in place on one card: over NCCL, and over Hearth's own ring.

NCCL refuses two ranks of a computer that share a card. `NCCL_HOSTID` tells it here that every rank
is on a computer of its own; it then connects them over TCP, as it does computers.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from support.conductor import Conductor
from support.ranks import environment, figures
from support.summing import LARGE, SMALL, conducted, formed, waiting
from support.team import SUM, Fault, Team
from support.waiting import until

from hearth.ranks.control_protocol import Interrupt, Leave

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

LAYOUT = {"tower": 1, "laptop": 1, "attic": 1}
NCCL = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "WARN"}

# Each rank claims a card, and NCCL a computer, of its own.
APART = """
import os
import hearth.ranks.world
os.environ["NCCL_HOSTID"] = os.environ["HEARTH_NODE"]
hearth.ranks.world._gpu = lambda device: f"the {device} of {os.environ['HEARTH_NODE']}"
"""

# Stops a rank of one node when it has a store and is about to connect its first NCCL group.
STOPS = """
import os, signal
import torch.distributed
Store = torch.distributed.TCPStore
def stop_once(*given, **named):
    torch.distributed.TCPStore = Store
    store = Store(*given, **named)
    os.kill(os.getpid(), signal.SIGSTOP)
    return store
if os.environ["HEARTH_NODE"] == {node!r}:
    torch.distributed.TCPStore = stop_once
"""


@pytest.fixture
def start(tmp_path: Path, kernels: dict[str, str]) -> Iterator[Callable[..., Conductor]]:
    """Return a function that starts three ranks which sum on the card."""
    with conducted(tmp_path, **kernels, **NCCL) as start:
        yield partial(start, LAYOUT, prelude=APART)


def sums(conductor: Conductor, *nodes: str) -> float:
    """Form a group of these nodes, which must sum over NCCL; return the seconds that it took."""
    ranks = conductor.ranks(*nodes)
    began = time.monotonic()
    for told in formed(conductor, conductor.form(*nodes), *ranks):
        assert told["carrier"] == "nccl"
        assert told["sum"] == sum(10**rank for rank in ranks)
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("lost", "size"), [("tower", SMALL), ("attic", LARGE)], ids=["between sums", "in a sum"]
)
def test_the_others_of_a_killed_rank_form_the_next_nccl_group_in_place(start, keep, lost, size):
    conductor = start(size)
    first = sums(conductor, *LAYOUT)
    time.sleep(0.5)  # into the sums
    others = [node for node in LAYOUT if node != lost]
    conductor.kill(*conductor.ranks(lost))
    at = time.monotonic()
    conductor.interrupt(*conductor.ranks(*others), why=f"{lost} was lost")
    out = waiting(conductor, "broken", 1, *conductor.ranks(*others))
    left = max(said.at for said in out) - at
    again = sums(conductor, *others)
    seconds = {"first group": first, "until all were out": left, "next group": again}
    keep(f"NCCL in place, {lost} killed", {name: round(each, 3) for name, each in seconds.items()})
    assert left < 5


def test_a_rank_that_stands_still_in_an_nccl_sum_is_left_behind_and_comes_back(start, keep):
    conductor = start(LARGE)
    sums(conductor, *LAYOUT)
    time.sleep(0.5)
    conductor.stop(1)
    time.sleep(0.5)
    at = time.monotonic()
    conductor.interrupt(0, 2, why="laptop stands still")
    for said in waiting(conductor, "broken", 1, 0, 2):
        assert said.message.message == "laptop stands still"
        assert said.at - at < 5
    again = sums(conductor, "tower", "attic")
    keep("NCCL in place, laptop stopped", {"next group": round(again, 3)})
    conductor.wake(1)
    conductor.order(Interrupt(1, "the others went on"), 1)
    waiting(conductor, "broken", 1, 1)
    conductor.pause(0, 2)
    waiting(conductor, "paused", 2, 0, 2)
    sums(conductor, *LAYOUT)


def test_twenty_nccl_groups_in_a_row_leave_hardly_anything_behind(start, keep):
    """A group that is aborted in its first large sum leaves a descriptor and 96 MiB (NCCL 2.28)."""
    conductor = start(LARGE)
    used, free, seconds = [], [], []
    for turn in range(20):
        began = time.monotonic()
        told = formed(conductor, order := conductor.form())
        seconds.append(round(time.monotonic() - began, 3))
        used.append([(each["open"], each["threads"]) for each in told])
        free.append(torch.cuda.mem_get_info()[0] >> 20)
        time.sleep(0.02 * (turn % 4))
        if turn % 3:
            conductor.interrupt()
            waiting(conductor, "broken", order.generation)
        else:
            conductor.pause()
            waiting(conductor, "paused", order.generation)
    keep("NCCL in place, twenty groups", {"seconds": seconds, "used": used, "free_mib": free})
    for (opened, threads), (opened_first, threads_first) in zip(used[-1], used[1], strict=True):
        assert opened <= opened_first + 10
        assert threads == threads_first
    assert free[-1] > free[1] - 1024


@pytest.mark.parametrize("still", ["tower", "attic"])
def test_a_rank_that_stands_still_while_nccl_connects_does_not_hold_up_the_next_group(start, still):
    conductor = start(SMALL, prelude=APART + STOPS.format(node=still))
    others = [node for node in LAYOUT if node != still]
    (rank,) = conductor.ranks(still)
    status = Path(f"/proc/{conductor.pids[rank]}/stat")
    conductor.form()
    until(lambda: status.read_text().rpartition(")")[2].split()[0] == "T")
    time.sleep(1)
    at = time.monotonic()
    conductor.interrupt(*conductor.ranks(*others), why=f"{still} stands still")
    for said in waiting(conductor, "broken", 1, *conductor.ranks(*others)):
        assert said.at - at < 5
    sums(conductor, *others)
    conductor.interrupt(*conductor.ranks(*others))
    conductor.order(Leave(save=False), *conductor.ranks(*others))
    assert conductor.wait(*conductor.ranks(*others), seconds=60) == [0, 0]


def test_ranks_that_nccl_refuses_say_why_and_live_on(start):
    conductor = start(SMALL, prelude=APART.replace("NCCL_HOSTID", "NOTHING"))
    order = conductor.form()
    for said in waiting(conductor, "broken", order.generation):
        assert "no NCCL group could be formed" in said.message.message
    assert formed(conductor, conductor.form("laptop"), 1)[0]["sum"] == 10


@pytest.mark.parametrize(
    ("backend", "precision", "carrier", "within"),
    [
        ("transformers", "fp32", "ring", 1e-4),
        ("transformers", "fp32", "nccl", 1e-4),
        ("unsloth", "bf16", "nccl", 1e-2),
    ],
)
def test_the_others_train_on_when_a_rank_on_the_card_is_killed(
    tmp_path, trained, llama, texts, kernels, backend, precision, carrier, within
):
    settings = {
        **{"backend": backend, "precision": precision, "micro_batch": 2, "split": "equal"},
        **{"model": str(llama), "dataset": str(texts), "sequence_length": 512, "held_out": 0},
        **{"learning_rate": 1e-3, "global_batch": 8, "max_steps": 8, "optimizer": "adamw"},
        **{"wandb": "off", "eval_held_out": False},
    }
    common = ("--backend", backend, "--precision", precision, "--micro-batch", 2)
    alone, _ = trained("alone", 1, *common)
    with Team(
        tmp_path / "team",
        settings,
        Fault("b", SUM, 4, before=True),
        prelude=APART if carrier == "nccl" else "",
        imported_with=tuple((kernels | NCCL).items()),
        on_gpu=True,
    ) as team:
        team.begin()
        assert team.ranks.wait(1) == [-9]
        team.ranks.interrupt(0, 2)  # as supervisors do that miss one of theirs
        team.regroup("a", "c")
        team.end("a", "c")
        for node in "ac":
            folder = team.folder(node)
            assert figures(folder, "start", "gradients") == [carrier]
            assert figures(folder, "step", "step") == [*range(1, 9)]
            assert figures(folder, "team", "step") == [3]
            assert figures(folder, "step", "loss") == pytest.approx(
                figures(alone, "step", "loss"), rel=within
            )


HOLDS = """
import sys, torch
held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("holds", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_the_memory_of_a_process_is_free_within_three_seconds_of_its_end(tmp_path, kernels, how):
    size = 2 << 30
    before, _ = torch.cuda.mem_get_info()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(size)],
        env=environment(tmp_path) | kernels,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"holds\n"
        assert torch.cuda.mem_get_info()[0] < before - size
        process.kill() if how == "killed" else process.stdin.close()
        process.wait()
        until(lambda: torch.cuda.mem_get_info()[0] > before - (64 << 20), 3)
