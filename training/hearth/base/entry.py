"""The end of a program that a person calls: findings on the screen, and an exit status."""

from __future__ import annotations

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
    """Run `program` and return its exit status: 2 after a `HearthError`, 130 after Ctrl-C."""
    try:
        return program()
    except HearthError as error:
        return print_findings(error)
    except KeyboardInterrupt:
        return INTERRUPTED
