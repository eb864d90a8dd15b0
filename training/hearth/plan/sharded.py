"""Network cost of sharding the model over the ranks (`parallel: fsdp`)."""

from __future__ import annotations

from collections.abc import Sequence

from hearth.base.text import byte_count, duration
from hearth.plan.split import Plan, by_shares, shares_for

_ASSUMED_MBIT = 1000.0
"""Assumed speed of a home network where no link was measured."""


def fetched_bytes(weights: int, ranks: int) -> float:
    """Return the maximum bytes each rank receives in a micro-batch, of `weights` bytes in all.

    These are the other ranks' parts, once for the forward and once for the backward pass, since no
    rank keeps them in between. (Embeddings and head are fetched once.)
    """
    return 2 * weights * (ranks - 1) / ranks


def fetch_seconds(weights: int, ranks: int, mbit: float | None = None) -> float:
    """Return the seconds to receive `fetched_bytes` at `mbit` Mbit/s, the slowest link if measured.

    Modelled as a ring, in which every link carries the bytes that one rank receives.
    """
    return fetched_bytes(weights, ranks) / ((mbit or _ASSUMED_MBIT) * 1e6 / 8)


def turns(rows: int, micro_batch: int, split: Sequence[int] | None, ranks: int) -> int:
    """Return the number of micro-batches that `ranks` ranks compute together in a step of `rows`.

    Raises `ConfigError` as `shares_for`.
    """
    divided = by_shares(rows, shares_for(split, ranks))
    return Plan(divided, (micro_batch,) * ranks, together=True).turns


def network_cost(weights: int, ranks: int, mbit: float | None = None) -> str:
    """Return a warning about the network cost; `mbit` is the slowest link, if measured."""
    link = f"{mbit or _ASSUMED_MBIT:.0f} Mbit/s" + (" (assumed)" if mbit is None else "")
    seconds = fetch_seconds(weights, ranks, mbit)
    return (
        f"parallel=fsdp: each of {ranks} ranks keeps its shard of {byte_count(weights)} of weights "
        f"and fetches up to {byte_count(fetched_bytes(weights, ranks))} in every micro-batch: "
        f"{duration(seconds)} at {link}. A larger micro_batch fetches less often; if the model "
        "fits every card, parallel=ddp is far faster"
    )
