"""Packing of documents into rows. No I/O.

Best-fit decreasing: the longest document first, each into the fullest row that still has room.
It needs at most about a fifth more rows than the optimum (11/9, Johnson et al. 1974); in practice
padding is well under one percent if there are enough short documents. Documents are never split.
"""

from __future__ import annotations

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
