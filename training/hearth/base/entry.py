"""Programs of Hearth: quiet imports of the libraries, verbs for the play, findings, exit status."""

from __future__ import annotations

import argparse
import gc
import io
import json
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from hearth.base.errors import HearthError
from hearth.base.files import DISK_FULL


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


Verb = Callable[[Path, dict[str, Any]], Mapping[str, Any]]
"""Takes the path of the run file and the spec; returns `facts`, `findings` or both."""


def run_verb(verbs: Mapping[str, Verb]) -> int:
    """Run the verb on the command line, print its answer and return the exit status.

    The status is 0, or 2 if there are findings. A verb's output goes to standard error.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=verbs)
    parser.add_argument("--run-file", type=Path, metavar="FILE")
    parser.add_argument("--spec", type=Path, metavar="FILE", help="what to do (JSON)")
    given = parser.parse_args()
    answer: dict[str, Any] = {"facts": {}, "findings": []}
    with redirect_stdout(sys.stderr):
        try:
            spec = json.loads(given.spec.read_text()) if given.spec else {}
            answer |= verbs[given.verb](given.run_file, spec)
        except HearthError as error:
            answer["findings"] = error.findings
    print(json.dumps(answer))
    return 2 if answer["findings"] else 0


class _Sparing(io.FileIO):
    """A file that drops writes when its disk is full or fails."""

    def write(self, content: bytes) -> int:  # type: ignore[override]
        """Write, or drop the content if the disk has no room for it."""
        try:
            return super().write(content)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            return len(content)


def spare_output() -> None:
    """Drop this process's output while the disk of its log is full or fails.

    Otherwise any print would end the process.
    """
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        getattr(sys, name).flush()
        file = io.BufferedWriter(_Sparing(descriptor, "wb", closefd=False))
        stream = io.TextIOWrapper(file, "utf-8", "backslashreplace", line_buffering=True)
        setattr(sys, name, stream)


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
