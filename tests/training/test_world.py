"""Join the ranks of a run, with timeouts that depend on supervision."""

from __future__ import annotations

import pytest
from support.ranks import python, succeeded
from support.supervisors import free_port

# Two ranks that join; the first prints for how many seconds they wait for each other.
JOINING = """
import multiprocessing, os, sys
import torch
import torch.distributed as dist
from hearth.ranks.world import join, leave

def rank(number):
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number))
    world = join()
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    if world.leads:
        print(group.options._timeout.total_seconds(), world.generation, flush=True)
    leave(world)

fork = multiprocessing.get_context("fork")
ranks = [fork.Process(target=rank, args=(number,)) for number in range(2)]
for each in ranks: each.start()
for each in ranks: each.join(30)
sys.exit(sum(each.exitcode for each in ranks))
"""


@pytest.mark.parametrize(
    ("supervised", "told"),
    [({}, "1800.0 0"), ({"HEARTH_GENERATION": "0"}, "86400.0 0")],
    ids=["by hand", "under supervisors"],
)
def test_where_supervisors_find_a_loss_ranks_outlast_the_longest_round(tmp_path, supervised, told):
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    done = succeeded(python(tmp_path, "-c", JOINING, **address, **supervised))
    assert done.stdout.strip() == told
