"""The command line of a bench: measure, print the table, and keep both."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bench.lab import NAME, ROOT, CommandFailed
from tests.bench.paper import circumstances, publish

Figures = Mapping[str, Any]


def at_least(least: int, why: str) -> Callable[[str], int]:
    """Return an argparse type for integers of at least `least`; its error begins with `why`."""

    def number(text: str) -> int:
        if (count := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{why}; at least {least}")
        return count

    return number


class Bench:
    """A bench's command line, with room for options of its own.

    `name` is that of its folder and of its section in tests/bench/README.md, which `table` makes of
    the figures; `about` is for `--help`; with `lab` it boots machines.
    """

    def __init__(
        self, name: str, about: str | None, table: Callable[[Figures], str], lab: bool = False
    ) -> None:
        self._name, self._table, self._lab = name, table, lab
        self._parser = argparse.ArgumentParser(
            prog=f"python -m tests.bench.{name}",
            description=about,
            epilog="Raw figures go beside the bench, and the table into tests/bench/README.md.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.option = self._parser.add_argument
        self.option("--dry", action="store_true", help="print the table, write nothing")
        self.option(
            "--again", action="store_true", help="make the table from the last figures, unmeasured"
        )

    def run(self, measure: Callable[[argparse.Namespace, Path], Figures]) -> None:
        """Measure and publish; exit with 1 where there are no figures.

        `measure` is given the options and a folder that is gone afterwards; it raises
        `CommandFailed` then.
        """
        given = self._parser.parse_args()
        raw = ROOT / "tests" / "bench" / self._name / "figures.json"
        figures = json.loads(raw.read_text()) if given.again else self._measured(measure, given)
        section = self._table(figures)
        print(section)
        if not given.dry:
            publish(self._name, figures, raw, section)

    def _measured(
        self, measure: Callable[[argparse.Namespace, Path], Figures], given: argparse.Namespace
    ) -> Figures:
        if self._lab and os.geteuid() != 0:
            self._parser.error("the lab needs root")
        # Not below /tmp, which a machine has for itself.
        with tempfile.TemporaryDirectory(prefix="hearth-bench-", dir="/var/tmp") as folder:
            try:
                return circumstances() | measure(given, Path(folder))
            except CommandFailed as error:
                sys.exit(f"bench: no figures: {error}")


def turns(count: int) -> Iterator[int]:
    """Count the turns of a bench, and say after each that it is done."""
    for turn in range(count):
        yield turn
        print(f"bench: {turn + 1} of {count} turns", flush=True)


def played(tests: str, folder: Path) -> list[dict[str, Any]]:
    """Run a file of tests on a lab of the bench's own; return its record from `folder`."""
    record = folder / "record.jsonl"
    record.touch()
    command = [sys.executable, "-m", "pytest", "-q", f"tests/{tests}"]
    told = {"HEARTH_LAB": NAME, "HEARTH_RECORD": str(record), "HEARTH_ALL": "1"}
    if subprocess.run(command, cwd=ROOT, env={**os.environ, **told}).returncode:
        raise CommandFailed(f"{tests} did not pass")
    return [json.loads(line) for line in record.read_text().splitlines()]
