"""Ranks join, with timeouts that depend on supervision, and tell each other values."""

from __future__ import annotations

import json

import pytest
from support.ranks import python, succeeded
from support.supervisors import free_port

IMPORTS = """
import json, multiprocessing, os, sys
import torch
import torch.distributed as dist
from hearth.ranks.world import join, leave
"""

FORKED = """
fork = multiprocessing.get_context("fork")
numbers = range(int(os.environ["WORLD_SIZE"]))
ranks = [fork.Process(target=rank, args=(number,)) for number in numbers]
for each in ranks: each.start()
for each in ranks: each.join(60)
sys.exit(sum(each.exitcode for each in ranks))
"""

# Two ranks that join several times; the first prints for how many seconds they wait for each other.
JOINING = """

def rank(number):
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number))
    for seconds, changes in json.loads(sys.argv[1]):
        os.environ.update(changes)
        world = join(seconds)
        group = dist.group.WORLD._get_backend(torch.device("cpu"))
        if world.leads:
            print(group.options._timeout.total_seconds(), world.generation, flush=True)
        leave(world)
"""


# Three ranks that tell each other something, without torch's unpickler.
TALKING = """
import torch.distributed.distributed_c10d as c10d
c10d._unpickler = None

def words(number):
    return ["ä" * 1000 * number, {"rank": number, "none": None, "loss": number / 3}, float("inf")]

def rank(number):
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number))
    world = join()
    for size in (3, 2, 1):
        everyones = [words(each * size) for each in range(3)]
        assert world.gather(words(number * size)) == everyones
        assert world.from_rank(size - 1, words(number * size)) == everyones[size - 1]
    assert world.from_leader((number, "a")) == [0, "a"]
    for content in (b"", bytes(range(256)) * 5000):
        assert world.bytes_from(2, content if number == 2 else b"other") == content
    for kind in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for shape in ((), (3, 5)):
            buffer = torch.full(shape, number + 1 / 3, dtype=kind)
            world.broadcast_(buffer)
            assert torch.equal(buffer, torch.full(shape, 1 / 3, dtype=kind))
    leave(world)
"""


def test_ranks_tell_each_other_values_and_nothing_is_unpickled(tmp_path):
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "3"}
    succeeded(
        python(tmp_path, "-W", "error::UserWarning", "-c", IMPORTS + TALKING + FORKED, **address)
    )


def test_where_supervisors_find_a_loss_ranks_outlast_the_longest_round(tmp_path):
    by_hand, supervised = {}, {"HEARTH_GENERATION": "0"}
    cases = [
        (seconds, {"MASTER_PORT": str(free_port()), **started})
        for seconds, started in ((0, by_hand), (0, supervised), (90.5, supervised))
    ]
    address = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"}
    program = ("-c", IMPORTS + JOINING + FORKED, json.dumps(cases))
    done = succeeded(python(tmp_path, *program, **address))
    assert done.stdout.splitlines() == ["1800.0 0", "86400.0 0", "90.5 0"]


# Two ranks of which one does not come to the exchange.
ABSENT = """
import time

def rank(number):
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number))
    world = join(5.0)
    began = time.monotonic()
    if number:
        time.sleep(20)
        os._exit(0)
    try:
        world.sum_(torch.ones(1))
    except RuntimeError:
        print("given up" if time.monotonic() - began < 15 else "too late", flush=True)
    os._exit(0)
"""


@pytest.mark.rotated
def test_an_exchange_is_given_up_after_the_time_that_was_set(tmp_path):
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    done = succeeded(python(tmp_path, "-c", IMPORTS + ABSENT + FORKED, **address))
    assert done.stdout.strip() == "given up"
