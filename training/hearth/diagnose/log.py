"""Finds the last real error in the output of torchrun and its ranks.

A node's log mixes the lines of several ranks with torchrun's own. When a rank fails, its peers
fail too, because their connection to it breaks: those errors are echoes, and each node has some.
The patterns here were taken from logs of torch 2.13 (tests/fixtures/torchrun).
"""

from __future__ import annotations

import dataclasses
import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

MESSAGE_LIMIT = 1000
"""Longest message in characters; some libraries raise whole pages."""

LINE_LIMIT = 2000
"""Characters of a line that are searched: a dump of a megabyte without a blank is no error text."""

_ECHO = re.compile(
    r"""
      connection\ (closed|reset)\ by\ (remote\ )?peer      # gloo, sockets
    | broken\ pipe
    | remote\ process\ exited | ncclRemoteError             # NCCL
    | NCCL\ communicator\ was\ aborted | has\ been\ aborted
    | watchdog\ caught\ collective\ operation\ timeout
    | the\ remote\ server\ shut\s?down
    | timed\ out\ waiting\ \d+\s?ms\ for\ (recv|send)       # gloo
    | gloo.*(timed\ out|connect.*(failed|timeout|refused))
    | (DistNetworkError|DistStoreError)(?!.*(EADDRINUSE|gai\ error))  # the store is gone
    | SignalException | SIGTERM | signal\ 15\b              # another process ended it
    | KeyboardInterrupt
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_UNREACHED = re.compile(
    r"client socket has timed out .+ trying to connect to \((?P<name>\S+), \d+\)"
)
_UNKNOWN = re.compile(
    r"\[c10d\] (?P<said>The .*addresses of \((?P<name>\S+), \d+\) cannot be retrieved.+)"
)
_DOWNLOAD = re.compile(r"https?://|HTTPS?Connection|urllib3|requests\.|httpx|huggingface", re.I)

_PREFIX = re.compile(r"^\[(?:rank|default)(?P<rank>\d+)\]:\s?")
_HEARTH = re.compile(r"^hearth: error: (?P<message>.+)")
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "(?P<path>[^"]*)", line (?P<line>\d+)')
_FATAL = re.compile(r"^Fatal Python error: .+")
_LAST_WORDS = re.compile(r"(?<=what\(\):).+")  # of an uncaught C++ exception
_NOT_STARTED = re.compile(r"^\S*python\S*: (?P<message>can't open file .+|No module named .+)")
_EXCEPTION = re.compile(r"^(?!Failures:)[A-Za-z_][\w.]*(?:: .*|:?\s*)$")  # not torchrun's heading
_USAGE, _USAGE_STATUS = re.compile(r"^\S+: error: .+"), 2  # of argparse
_TORCHRUN_LINE = re.compile(r"^[EWI]\d{4} [\d:.]+ \d+ \S+:\d+\]")
_OWN_LINE = re.compile(r"^hearth: ")
_LAUNCH = re.compile(
    r"^hearth: \S+ (run \S+: \S+ is rank \d+ of \d+, meeting at|.+; starting torchrun \()",
    re.MULTILINE,
)
_KERNEL = re.compile(r"^hearth: \S+ kernel: (?P<said>.+)$", re.MULTILINE)
_DEADLY = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_CHILD_FAILED = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
_RULE = re.compile(r"^=+$")
_NO_REPLY = "Failed to parse reply file"
"""Said by torchrun of a rank that could not write down its error, as on a full disk."""


@dataclass(frozen=True)
class RankError:
    """The error that ended a rank: the rank's number (if known) and a message of a few lines.

    `killed`: by a signal that a rank does not send itself; `has_cure`: reported by Hearth itself,
    with its cure; `where`: file and line in the user's script that raised it, if requested.
    """

    rank: int | None
    message: str
    killed: bool = False
    has_cure: bool = False
    where: str = ""

    @property
    def placed(self) -> str:
        """The message, preceded by its file and line if known."""
        return f"{self.where}: {self.message}" if self.where else self.message


def is_echo(message: str) -> bool:
    """Return whether an error only reports a lost peer or a requested end."""
    message = message[:MESSAGE_LIMIT]
    return bool(_ECHO.search(message)) and not _DOWNLOAD.search(message)


def first_failure(failures: Iterable[Any]) -> Any:
    """Return the earliest failure that is not an echo, else the earliest, else None.

    `failures` are objects with a `message`, in the order of their detection.
    """
    known = list(failures)
    real = (failure for failure in known if not is_echo(failure.message))
    return next(real, known[0] if known else None)


def last_error(text: str, script: str = "", first_rank: int | None = None) -> RankError | None:
    """Return the error that ended the ranks of one node, or None if the log shows none.

    `script` is the folder of a user's script as it appears in paths; the error then carries the
    innermost traceback line inside it. `first_rank` is the number of this node's first rank in the
    run, if its torchrun has only this node's ranks and numbers them from 0.

    In order of trust: Hearth's own error; a signal that a rank does not send itself; the last
    exception that is not an echo; an abort; an echo; a rank that ended without a message.
    """
    lines = beginnings(text)
    report = _torchrun_report(lines, first_rank or 0)
    found = (
        _reported(lines) or _killed(report) or _last_raised(lines, script) or _ended(report, lines)
    )
    if found and first_rank is not None:
        # A rank of a group that was formed in place names its number within that group.
        return dataclasses.replace(found, rank=report and report.rank)
    if found and found.rank is None and report:
        return dataclasses.replace(found, rank=report.rank)
    return found


def failed_status(text: str) -> int | None:
    """Return the exit status of the first rank to fail according to torchrun, None without one.

    A negative status is the signal that killed it.
    """
    report = _torchrun_report(beginnings(text), 0)
    return report and report.status


def beginnings(text: str) -> list[str]:
    """Return the lines of a text, each cut to LINE_LIMIT."""
    return [line[:LINE_LIMIT] for line in text.splitlines()]


def last_launch(text: str) -> str:
    """Return the part of a node's log since its supervisor's last launch, or all without one."""
    starts = [match.start() for match in _LAUNCH.finditer(text)]
    return text[starts[-1] :] if starts else text


def kernel_lines(text: str) -> list[str]:
    """Return the kernel messages that the supervisor logged in the last launch."""
    return [match["said"] for match in _KERNEL.finditer(last_launch(text))]


def _reported(lines: list[str]) -> RankError | None:
    """Return Hearth's own error, with all findings of the first rank that reported any."""
    by_rank: dict[int | None, list[str]] = {}
    for line in lines:
        rank, bare = _split(line)
        if match := _HEARTH.match(bare):
            messages = by_rank.setdefault(rank, [])
            if match["message"] not in messages:
                messages.append(match["message"])
    for rank, messages in by_rank.items():
        return RankError(rank, _shortened("\n".join(messages)), has_cure=True)
    return None


def _last_raised(lines: list[str], script: str) -> RankError | None:
    """Return the last exception of a rank (not of torchrun), an echo only if all are echoes.

    Each rank's lines are parsed separately: ranks that fail at once interleave their output.
    """
    by_rank: dict[int | None, list[str]] = {}
    for line in _without_report(lines):
        rank, bare = _split(line)
        by_rank.setdefault(rank, []).append(bare)
    # torchrun then ends with an error that says nothing of the rank's.
    its_own = "json." if any(_NO_REPLY in line for line in lines) else None
    raised = [
        RankError(rank, _shortened(_with_reason(message, lines)), where=where)
        for rank, own in by_rank.items()
        for message, where in _exceptions(own, script)
        if not (its_own and rank is None and message.startswith(its_own))
    ]
    return first_failure(reversed(raised))


def _with_reason(message: str, lines: list[str]) -> str:
    """Return the message, with torch's DNS warning added if a node's name did not resolve.

    torch retries the name until its timeout and warns each time; its exception reports only the
    timeout.
    """
    if unreached := _UNREACHED.search(message):
        for line in lines:
            if (warned := _UNKNOWN.search(line)) and warned["name"] == unreached["name"]:
                return f"{message}\n{warned['said']}"
    return message


def _exceptions(lines: list[str], script: str) -> Iterator[tuple[str, str]]:
    """Yield the closing lines of each traceback, and errors of the interpreter itself.

    Each comes with `file:line` of the innermost frame in the folder `script`, or "".
    """
    inside = ignored = False
    where = ""
    position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        if match := _NOT_STARTED.match(line):
            yield match["message"], ""
        elif line.startswith("Exception ignored in"):
            ignored = True
        elif line == _TRACEBACK:
            inside, where = True, ""
        elif match := _FRAME.match(line):
            inside = True
            _, inner, path = match["path"].rpartition(f"/{script}/") if script else ("", "", "")
            where = f"{path}:{match['line']}" if inner else where
        elif inside and line[:1] not in (" ", "") and _EXCEPTION.match(line):
            message = [line]
            while position < len(lines) and _continues(lines[position]):
                message.append(lines[position])
                position += 1
            if not ignored and not line.startswith(_CHILD_FAILED):
                yield "\n".join(message).rstrip(), where
            inside, ignored, where = False, False, ""


def _continues(line: str) -> bool:
    """Return whether a line continues the message of the exception above it."""
    return bool(line.strip()) and not (
        line == _TRACEBACK
        or _TORCHRUN_LINE.match(line)
        or _FATAL.match(line)
        or _OWN_LINE.match(line)
        or line.startswith(("terminate called", "Exception ", "frame #"))
    )


def _without_report(lines: list[str]) -> Iterator[str]:
    """Drop torchrun's summary box, which repeats the tracebacks indented."""
    inside = False
    for position, line in enumerate(lines):
        if _RULE.match(line):
            inside = not inside and position > 0 and lines[position - 1].startswith(_CHILD_FAILED)
        elif not inside:
            yield line


@dataclass(frozen=True)
class _Report:
    """The first rank to fail according to torchrun; a negative status is a signal."""

    rank: int
    status: int


def _torchrun_report(lines: list[str], first_rank: int) -> _Report | None:
    """Return the first failed rank and its status from torchrun's summary box.

    `first_rank` is added to torchrun's number of the rank.
    """
    at = next((n for n, line in enumerate(lines) if line.startswith("Root Cause (first")), None)
    if at is None:
        return None
    block = "\n".join(lines[at : at + 8])
    rank, status = re.search(r"rank\s*: (\d+)", block), re.search(r"exitcode\s*: (-?\d+)", block)
    return _Report(first_rank + int(rank[1]), int(status[1])) if rank and status else None


def _killed(report: _Report | None) -> RankError | None:
    """Return the death of a rank by a signal, which outranks any exception printed before."""
    if report is None or -report.status not in _DEADLY:
        return None
    message = f"rank {report.rank} was {killed_by(-report.status)}"
    return RankError(report.rank, message, killed=True)


def _ended(report: _Report | None, lines: list[str]) -> RankError | None:
    """Return the error of a rank that ended without an exception: its signal or status."""
    if report is None:
        return None
    usage = [bare for line in lines if _USAGE.match(bare := _split(line)[1])]
    if report.status == _USAGE_STATUS and usage:
        message = usage[-1]
    elif report.status > 0:
        message = f"rank {report.rank} ended with status {report.status} and without an error"
    else:
        message = f"rank {report.rank} was {killed_by(-report.status)}"
        said = [match[0].strip() for line in lines if (match := _LAST_WORDS.search(line))]
        message += f": {said[-1]}" if said else ""
    return RankError(report.rank, message)


def killed_by(number: int) -> str:
    """Return e.g. `killed by signal 9 (SIGKILL)`, with the usual reason for SIGKILL."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "unknown"
    words = f"killed by signal {number} ({name})"
    if number == signal.SIGKILL:
        words += "; either memory ran out (see `dmesg`) or a person killed it"
    return words


def _split(line: str) -> tuple[int | None, str]:
    """Split a line into the rank in torch's prefix `[rank1]: ` (or None) and the rest."""
    if match := _PREFIX.match(line):
        return int(match["rank"]), line[match.end() :]
    return None, line


def _shortened(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"
