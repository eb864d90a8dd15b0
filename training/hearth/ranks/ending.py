"""The end of a rank's process, with the exit status that its program returns."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import NoReturn


def exit_with(program: Callable[[], int]) -> NoReturn:
    """Call `program` and exit with the status that it returns; the status is 1 if it raises.

    A rank that refuses or fails is still in torch's group. Its threads abort a process whose Python
    has ended when they free a tensor, and destroying the group waits for collectives that a peer
    never joins. So such a process ends before Python does, after all other exit handlers.
    """
    status = 1

    def end() -> None:
        distributed = sys.modules.get("torch.distributed")
        if distributed and distributed.is_initialized():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    atexit.register(end)  # the handlers registered later are called before it
    status = program()
    sys.exit(status)
