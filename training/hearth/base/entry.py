"""The end of a program that a person calls: findings on the screen, and an exit status."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable

from hearth.base.errors import HearthError

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def print_findings(error: HearthError) -> int:
    """Print the findings of an error of the user's, and return its exit status."""
    for finding in error.findings:
        print(f"hearth: error: {finding}", file=sys.stderr, flush=True)
    return 2


def exit_status(program: Callable[[], int]) -> int:
    """Run `program` and return its exit status: 2 after a `HearthError`, 130 after Ctrl-C.

    It is 0 once the reader of the output, such as `head`, has ended.
    """
    try:
        try:
            return program()
        finally:  # here, and not as Python ends, a reader that has ended is noticed
            sys.stdout.flush()
    except HearthError as error:
        return print_findings(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        if not reader_has_ended():
            raise
        return 0


def reader_has_ended() -> bool:
    """Return whether the reader of the output has ended; further output is dropped then."""
    ended = []
    for output in (sys.stdout.fileno(), sys.stderr.fileno()):
        poll = select.poll()
        poll.register(output, 0)  # errors are always reported
        if any(events & select.POLLERR for _, events in poll.poll(0)):
            ended.append(output)
    for output in ended:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output)
        os.close(nowhere)
    return bool(ended)
