#!/usr/bin/env python3
"""Sum a buffer over all ranks, check the result and time it; rank 0 writes it to a file here.

torchrun starts this for `python -m hearth.node all-reduce`, in place of the training and in the
same way: the same supervisor, interfaces, groups and back end.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from hearth.node.all_reduce import ANSWER, MEBIBYTES
from hearth.ranks.world import join, leave

_TIMES = 3


def main() -> None:
    """Take part as one rank; rank 0 writes the answer to the current folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-file", help="not read; a supervisor names it to what it starts")
    parser.parse_args()
    world = join()
    own = torch.full(
        (MEBIBYTES << 18,), float(world.rank + 1), dtype=torch.float32, device=world.gradient_device
    )
    expected = world.size * (world.size + 1) / 2
    right, seconds = True, []
    for _ in range(_TIMES):
        buffer = own.clone()
        world.barrier()
        began = time.perf_counter()
        world.sum_(buffer)
        # Reading the values also waits until a GPU has them.
        right = right and bool((buffer == expected).all().item())
        seconds.append(time.perf_counter() - began)
    ranks = world.gather((world.node, right))
    if world.leads:
        answer = {
            "nodes": [node for node, _ in ranks],
            "wrong": [node for node, fine in ranks if not fine],
            "mebibytes": MEBIBYTES,
            "over": "nccl" if world.gradients else "gloo",
            "seconds": round(min(seconds), 4),
        }
        Path(ANSWER).write_text(json.dumps(answer))
    leave(world)


if __name__ == "__main__":
    main()
