"""Equal initial weights on all ranks: compared by checksum, broadcast only if they differ."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch

from hearth.ranks.world import World


@torch.no_grad()
def sync_weights(parameters: Sequence[torch.nn.Parameter], world: World) -> int:
    """Give every rank rank 0's `parameters`; return the number of those that had to be sent.

    Weights from equal files or one seed are equal already, unless some ranks drew them on a GPU and
    others on a CPU. Checksums of a whole model are kilobytes, its weights gigabytes.
    """
    everyone = world.gather([_checksum(parameter) for parameter in parameters])
    differing = [
        parameter
        for parameter, sums in zip(parameters, zip(*everyone, strict=True), strict=True)
        if len(set(sums)) > 1
    ]
    for parameter in differing:
        # A copy, so that a rank that is lost meanwhile leaves the others whole.
        value = parameter.detach().cpu().clone(memory_format=torch.contiguous_format)
        world.broadcast_(value)
        parameter.copy_(value)
    return len(differing)


def _checksum(parameter: torch.nn.Parameter) -> str:
    """Return a checksum of the parameter's bytes."""
    flat = parameter.detach().cpu().contiguous().flatten()
    return hashlib.sha256(flat.view(torch.uint8).numpy()).hexdigest()
