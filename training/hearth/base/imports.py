"""Faster, quiet imports of torch, transformers and peft, which take most CPU time at start."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from hearth.base.quiet import hush_imports


@contextmanager
def loading() -> Iterator[None]:
    """Disable garbage collection during heavy imports and freeze the objects they create.

    Imports create some hundred thousand permanent objects, which Python would scan again and again:
    this saves a seventh of the CPU seconds of a tiny run (9.9 instead of 11.5). Libraries that warn
    while they are imported log errors only.
    """
    hush_imports()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
