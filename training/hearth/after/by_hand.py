"""The parts after a run that was started by hand, which rank 0 does instead of a supervisor."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

from hearth.after.request import Request, by_hand
from hearth.config import Run


def check_afterwards(run: Run, say: Callable[[str], None]) -> None:
    """Check that this computer can do what `run` asks for once it has finished.

    Raises `HearthError` with everything that is in the way.
    """
    if run.settings.goes_on_afterwards:
        from hearth.after.finished import (
            check,  # with the Hub's library, which other runs do without
        )

        check(Request.from_settings(run.settings), run, say)


def go_on_afterwards(run: Run, folder: Path) -> None:
    """Do what the finished `run` in `folder` asks for; what fails is told and recorded."""
    if not run.settings.goes_on_afterwards:
        return
    import torch

    from hearth.after.finished import afterwards

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    afterwards(folder, Request.from_settings(run.settings), by_hand(os.path.relpath(folder)), print)
