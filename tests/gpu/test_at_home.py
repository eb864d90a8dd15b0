"""A node that lends its idle card: it leaves the run while its owner plays on the card.

This file comes first: a test that computes on the card in pytest's own process would count
as its user.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from itertools import pairwise

import pytest
import torch
from support.assembly import TINY_WORK, Assembly, Pace
from support.ranks import arguments_of, command, environment, figures, metrics, succeeded, train
from support.waiting import until

from hearth.base.nvml import Cards
from hearth.lend.lender import certain_use
from hearth.lend.sensors import Sensors
from hearth.lend.terms import Terms

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

AFTER = 0.05
"""The node returns after these quiet minutes."""

GAME = """
import os, time, torch
held = torch.zeros(2 << 30, dtype=torch.uint8, device="cuda")
print(os.getpid(), flush=True)
while True:
    held.add_(1)
    torch.cuda.synchronize()
    time.sleep(0.005)
"""


@pytest.fixture
def cards() -> Iterator[Cards]:
    assert not torch.cuda.is_initialized(), "a test before this one computed on the card itself"
    found = Cards.open()
    assert found
    with closing(found):
        yield found


@pytest.fixture
def game(tmp_path, kernels):
    """Return a context with a game, in a process of another user; it gives its id."""

    @contextmanager
    def played() -> Iterator[int]:
        with subprocess.Popen(
            ["setsid", "--fork", sys.executable, "-c", GAME],
            env=environment(tmp_path) | kernels,
            stdout=subprocess.PIPE,
        ) as parent:
            pid = int(parent.stdout.readline())
            try:
                yield pid
            finally:
                os.kill(pid, signal.SIGKILL)

    return played


def test_a_game_on_the_card_is_seen_while_it_runs_and_no_longer(tmp_path, cards, game):
    sensors = Sensors(Terms.of({"when": "idle"}), tmp_path, find=lambda: cards)
    assert sensors.read().gpu == ()
    with game() as pid:
        until(lambda: any((each.sm_percent or 0) > 0 for each in sensors.read().gpu), 10)
        (seen,) = sensors.read().gpu
        assert seen.pid == pid
        assert seen.memory_mib >= 2048
        assert str(pid) in certain_use(sensors.read())
    until(lambda: sensors.read().gpu == (), 3)


def test_the_card_is_the_games_within_three_seconds_of_the_steps_end_and_the_run_goes_on(
    tmp_path, llama, texts, kernels, cards, game, keep
):
    work = TINY_WORK | {
        **{"model": str(llama), "dataset": str(texts), "sequence_length": 512, "held_out": 0},
        **{"backend": "transformers", "precision": "fp32", "optimizer": "adamw"},
        **{"learning_rate": 1e-4, "global_batch": 8, "schedule": "constant"},
    }
    free, waits = [], []
    with closing(Assembly(tmp_path / "house", work, 2, Pace(row=0.02))) as run:
        run.variables |= kernels
        run.change("node1", lend={"when": "idle", "hours": "", "after": AFTER, "command": ""})
        run.start()
        last = run.until_together().number
        for _ in range(3):
            rank = run.rank("node1").pid
            assert rank in {each.pid for each in cards.processes()}
            with game() as pid:
                until(lambda rank=rank: rank not in {each.pid for each in cards.processes()})
                gone = time.time()
                shared = [step for step in run.steps("node1") if all(step.rows)][-1]
                free.append(round(gone - datetime.fromisoformat(shared.time).timestamp(), 2))
                until(lambda pid=pid: str(pid) in run.record("node1")["away"])
                last = run.until_together(last, ["node0"]).number
            last = run.until_together(last).number
            waits.append([line["waited"] for line in run.lines("node0") if line["kind"] == "team"])
        steps = run.end()
    keep("lending, seconds from the step's end until NVML shows no rank", free)
    keep("lending, seconds that the other node waited for each new group", waits[-1])
    assert max(free) < 3
    typed = arguments_of({**work, "max_steps": steps, "checkpoint_every": 1_000_000})
    succeeded(train(tmp_path, 1, "--run-name", "alone", *typed, timeout=300, **kernels))
    assert [line["loss"] for line in run.lines("node0") if line["kind"] == "step"] == pytest.approx(
        figures(tmp_path / "runs/alone", "step", "loss"), rel=1e-4
    )


def test_the_energy_of_a_run_is_the_integral_of_the_cards_power(
    tmp_path, llama, texts, kernels, cards, keep
):
    work = TINY_WORK | {
        **{"model": str(llama), "dataset": str(texts), "sequence_length": 512, "held_out": 0},
        **{"backend": "transformers", "precision": "bf16", "optimizer": "adamw"},
        **{"global_batch": 32, "micro_batch": 8, "max_steps": 200},
    }
    power: list[tuple[float, float]] = []
    with subprocess.Popen(
        command(1, "--run-name", "alone", *arguments_of(work)),
        cwd=tmp_path,
        env=environment(tmp_path) | kernels,
    ) as process:
        while process.poll() is None:
            power.append((time.time(), cards.watts(0)))
            time.sleep(0.03)
    assert process.returncode == 0
    steps = metrics(tmp_path / "runs/alone", "step")
    first, last = (datetime.fromisoformat(steps[each]["time"]).timestamp() for each in (0, -1))
    counted = sum(step["energy_joules_by_rank"][0] for step in steps[1:])
    within = [(at, watts) for at, watts in power if first <= at <= last]
    integral = sum(
        (later - at) * (watts + after) / 2 for (at, watts), (later, after) in pairwise(within)
    )
    keep("energy of a run", {"counted": counted, "integral": integral, "seconds": last - first})
    assert counted == pytest.approx(integral, rel=0.02)
