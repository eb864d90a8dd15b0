"""The exit status of a rank that ends while it is still in a group."""

from __future__ import annotations

import subprocess
import sys

from support.ranks import environment
from support.supervisors import free_port
from support.waiting import HANG

# Of two sums the first is over, but gloo's thread gets Python's lock, to free its tensor, only at
# the end of Python: meanwhile the other rank is seen in shared memory. The second sum waits for a
# rank that does not come. Threads that still wait for the lock, to free a tensor of the group's
# start, would leave none for the first sum; after a while they get it.
_RANK = """
import atexit, mmap, sys, time
import torch, torch.distributed as dist
from hearth.ranks.control import exit_with
from hearth.ranks.world import World

def program():
    world = World(rank=int(sys.argv[1]), size=2)
    world.join_all()
    with open(sys.argv[2], "r+b") as file:
        over = mmap.mmap(file.fileno(), 1)
    if world.rank == 1:
        dist.all_reduce(torch.zeros(1))
        over[0] = 1
        input()
        raise RuntimeError("a bug")
    atexit.register(print, "put away")
    sys.setswitchinterval(1000)
    for _ in range(2):
        dist.all_reduce(torch.zeros(1), async_op=True)
    end = time.monotonic() + 0.3
    while not over[0] or time.monotonic() < end:
        if time.monotonic() > end + 1:
            time.sleep(0.01)
    return 2

exit_with(program)
"""


def test_a_rank_that_ends_in_a_group_keeps_its_exit_status_and_waits_for_nobody(tmp_path):
    over = tmp_path / "over"
    over.write_bytes(b"\0")
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    refuses, fails = ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _RANK, str(rank), str(over)],
            env=environment(tmp_path) | meeting | {"RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said, _ = refuses.communicate(timeout=HANG)
        assert (refuses.returncode, said) == (2, "put away\n")
        _, errors = fails.communicate("\n", HANG)
        assert fails.returncode == 1
        assert "a bug" in errors
    finally:
        for each in ranks:
            each.kill()
