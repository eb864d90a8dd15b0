"""Which documents are held out for evaluation. Pure arithmetic."""

from __future__ import annotations

import numpy as np


def held_out_mask(hashes: np.ndarray, marks: np.ndarray, fraction: float) -> np.ndarray:
    """Return which documents are held out, bool (documents,).

    Where the file marks any document, its marks alone decide, whatever `fraction` is. Otherwise a
    document is held out if its content's hash falls below `fraction` of the hash's range: that
    does not depend on the order of the file, keeps a document on its side when others are added,
    and puts equal documents on the same side. At least one document is held out if `fraction` is
    above 0.

    Args:
        hashes: uint64 (documents,), of the content.
        marks: int8 (documents,), 1 held out, 0 train, -1 unmarked.
        fraction: from 0 to 1.
    """
    if (marks >= 0).any():
        return marks == 1
    if fraction <= 0 or not len(hashes):
        return np.zeros(len(hashes), dtype=bool)
    # 53 bits: what a float holds exactly.
    chosen = (hashes >> np.uint64(11)) < np.uint64(fraction * 2**53)
    if not chosen.any():
        chosen = hashes == hashes.min()
    return chosen
