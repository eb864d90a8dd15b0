"""Arrange documents in rows, and the rows of data sets in an epoch. No I/O.

Packing is best-fit decreasing: the longest document first, each into the fullest row that still has
room. It needs at most about a fifth more rows than the optimum (11/9, Johnson et al. 1974); in
practice padding is well under one percent if there are enough short documents. Documents are never
split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def pack(lengths: np.ndarray, capacity: int, seed: int) -> list[list[int]]:
    """Return the rows, each a list of document numbers whose lengths add up to `capacity` or less.

    `lengths` is int (documents,), each from 1 to `capacity`. The result depends on the arguments
    alone; `seed` sets the order of documents with the same length.
    """
    shuffled = np.random.default_rng(seed).permutation(len(lengths))
    order = shuffled[np.argsort(-lengths[shuffled], kind="stable")]
    rows: list[list[int]] = []
    with_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    # Bit n is set while some row has room for exactly n tokens: the best fit is then found by a
    # shift and the lowest set bit, independent of the number of rows.
    rooms = 0
    for document, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            row = with_room[room].pop()
            if not with_room[room]:
                rooms &= ~(1 << room)
        else:
            room, row = capacity, len(rows)
            rows.append([])
        rows[row].append(document)
        left = room - length
        with_room[left].append(row)
        rooms |= 1 << left
    return rows


def partners(lengths: np.ndarray, records: np.ndarray, seed: int) -> np.ndarray:
    """Return for each answer that of another record to put in its place, int64 (answers,).

    The result is a permutation: each answer takes the next shorter one, and the shortest takes the
    longest, so that only this one has to be cut to the place. `lengths` is int64 (answers,),
    `records` the record of each, of which one may have two; `seed` decides between equal lengths.
    """
    shuffled = np.random.default_rng(seed).permutation(len(lengths))
    order = shuffled[np.argsort(lengths[shuffled], kind="stable")].tolist()
    count = len(order)
    for at in range(2 * count):  # no answer follows the other one of its record
        here, following, other = ((at + more) % count for more in range(3))
        if records[order[here]] == records[order[following]]:
            order[following], order[other] = order[other], order[following]
    found = np.empty(count, dtype=np.int64)
    found[order] = np.roll(order, 1)
    return found


@dataclass(frozen=True)
class Part:
    """One data set of a mixture: its number of rows, and the rows of it that an epoch takes.

    An epoch takes them from where the one before ended. After the last row the data set begins
    again in another order.
    """

    rows: int
    per_epoch: int


def parts_of_epoch(
    shares: Sequence[float], rows: Sequence[int], label_tokens: Sequence[int]
) -> tuple[Part, ...]:
    """Return the parts of a mixture that give each data set its share of the learned tokens.

    An epoch has about as many rows as all data sets together, and at least one of each. `shares`,
    `rows` and `label_tokens` are those of each data set, the shares in any unit.
    """
    wanted = np.array(shares) * rows / label_tokens  # rows for a token share
    per_epoch = np.maximum(1, np.round(wanted / wanted.sum() * sum(rows))).astype(int)
    return tuple(map(Part, rows, per_epoch.tolist()))
