"""Keeps the libraries' progress bars and advice off the screen and out of a run's log."""

from __future__ import annotations

import logging

from transformers.utils import logging as transformers_logging


def hush() -> None:
    """Let the libraries speak of errors only; called before bitsandbytes is imported."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
