"""Loading torch, transformers and peft, which takes most of the CPU seconds of a start."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Look for no garbage while libraries are imported, nor ever after among what they made.

    All of it stays, some hundred thousand objects, and Python would look through them again and
    again meanwhile: a seventh of the CPU seconds of a tiny run (9.9 instead of 11.5).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
