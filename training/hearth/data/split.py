"""Choice of the documents held out for evaluation. No I/O."""

from __future__ import annotations

import numpy as np


def held_out_mask(hashes: np.ndarray, marks: np.ndarray, fraction: float) -> np.ndarray:
    """Return the mask of held-out documents, bool (documents,).

    If the file marks any document, its marks alone decide, whatever `fraction` is. Otherwise a
    document is held out if its content's hash falls below `fraction` of the hash's range: this
    does not depend on the order of the file, keeps a document on its side when others are added,
    and puts equal documents on the same side. At least one document is held out if `fraction` is
    above 0. `hashes` and `marks` are those of `Documents`.
    """
    if (marks >= 0).any():
        return marks == 1
    if fraction <= 0 or not len(hashes):
        return np.zeros(len(hashes), dtype=bool)
    # Compare 53 bits, which a float holds exactly.
    chosen = (hashes >> np.uint64(11)) < np.uint64(fraction * 2**53)
    if not chosen.any():
        chosen = hashes == hashes.min()
    return chosen
