"""Silences the libraries' progress bars and warnings, on the screen and in a run's log."""

from __future__ import annotations

import logging

# bitsandbytes suggests a package that Hearth does not use, and torchao warns of each of its
# libraries that is built for another CUDA: both while they are imported.
_WARN_AT_IMPORT = ("bitsandbytes", "torchao")


def hush_imports() -> None:
    """Make the libraries that warn while they are imported log errors only; import none of them."""
    for name in _WARN_AT_IMPORT:
        logging.getLogger(name).setLevel(logging.ERROR)


def hush() -> None:
    """Make the libraries log errors only, and draw no progress bars."""
    # Imported late: Unsloth, where it is the backend, must come before transformers.
    from transformers.utils import logging as transformers_logging

    hush_imports()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
