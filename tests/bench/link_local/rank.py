"""One of two ranks of gloo, in a process of its own.

    GLOO_SOCKET_IFNAME=cable python -m tests.bench.link_local.rank RANK ADDRESS_OF_THE_STORE

Prints its progress: `store`, `group`, `all-reduce`.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

PORT = 29400
PATIENCE = timedelta(seconds=10)


def main(rank: int, address: str) -> None:
    """Meet the other rank in the store at `address`, and add its number to this rank's."""
    store = dist.TCPStore(address, PORT, 2, is_master=rank == 0, timeout=PATIENCE)
    print("store", flush=True)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=PATIENCE)
    print("group", flush=True)
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    if total.item() != 3:
        raise ValueError(f"1 and 2 are {total.item():g} by the all-reduce")
    print("all-reduce", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
