"""The log of a run on one node: its last lines, and new ones until the run has ended there."""

from __future__ import annotations

import re
from collections.abc import Callable

from hearth.supervise.cause import ENDS
from hearth_controller.base.paths import for_shell
from hearth_controller.watch.probe import MARK, Probe

_PROBES = 3
"""Number of probes without a living supervisor after which the log is complete."""

# A terminal's commands: colours, movements, titles.
_COMMAND = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")


def shown(line: str) -> str:
    """Return a line of a log without control codes; of a progress bar only its last state."""
    last = _COMMAND.sub("", line).rstrip("\r").rpartition("\r")[2].expandtabs()
    return "".join(c for c in last if c.isprintable()).rstrip()


class Log:
    """The log at `path`, read in parts; `probe` says whether its supervisor still writes to it."""

    def __init__(self, workspace: str, run: str, ask: Callable[[str], str]) -> None:
        self.path, self.probe = f"{workspace}/logs/{run}.log", Probe(workspace, run, ask)
        self._ask, self._size, self._half, self._over = ask, 0, "", 0

    @property
    def complete(self) -> bool:
        """Whether the run has ended here and nothing more is expected."""
        return self._over >= _PROBES

    def last_lines(self, count: int) -> list[str] | None:
        """Return the last lines, None if there is no log."""
        size, text = _parse(self._ask(self._command(f"tail -n {count}")))
        self._size = size or 0
        return None if size is None else [shown(line) for line in text.splitlines()]

    def new_lines(self) -> list[str]:
        """Return the whole lines that were added; half a line waits."""
        answer = self.probe.inspect(self._command(f"tail -c +{self._size + 1}"))
        size, text = _parse(answer)
        if size is None or size < self._size:  # begun anew
            self._size, self._half = 0, ""
            return []
        self._size = size
        *whole, self._half = (self._half + text).split("\n")
        record = self.probe.record
        over = record is None or record["state"] in ENDS or not self.probe.alive
        self._over = self._over + 1 if over else 0
        return [shown(line) for line in whole]

    def _command(self, part: str) -> str:
        """Return the shell command that pipes the log, as long as it is now, through `part`."""
        file = for_shell(self.path)
        return (
            f"test -f {file} || exit 0; size=$(wc -c < {file}); echo $size; echo {MARK}; "
            f"head -c $size {file} | {part}"
        )


def _parse(answer: str) -> tuple[int | None, str]:
    """Return the size of the log, None if there is none, and the part that was read."""
    head, mark, text = answer.partition(f"{MARK}\n")
    return (int(head), text) if mark else (None, "")
