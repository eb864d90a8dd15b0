"""Silences the libraries' progress bars and warnings, on the screen and in a run's log."""

from __future__ import annotations

import logging

from transformers.utils import logging as transformers_logging


def hush() -> None:
    """Make the libraries log errors only; call it before bitsandbytes and torchao are imported."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    for name in ("bitsandbytes", "torchao"):
        logging.getLogger(name).setLevel(logging.ERROR)
