"""Play what the pages show, and write the transcripts into the pages.

Plays on this computer's two nodes, and with root on three machines of the lab. Runs that it
starts are named as in the pages and removed first, should they be there from an earlier call.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from support.transcripts import blocks, rewritten

from tests.bench.lab import ROOT, CommandFailed

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_PATIENCE = 1800
"""Seconds after which a play has hung."""


class Terminal:
    """A reader's terminal: runs commands and keeps their screens."""

    def __init__(self) -> None:
        self.screens: dict[str, str] = {}
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "100",
        }

    def type(self, command: str, name: str = "", statuses: tuple[int, ...] = (0,)) -> str:
        """Run a command to its end and return its screen, kept under `name` if there is one.

        Raises `CommandFailed` for another exit status.
        """
        print(f"$ {command}", flush=True)
        done = subprocess.run(
            shlex.split(command),
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PATIENCE,
        )
        print(done.stdout, flush=True)
        if done.returncode not in statuses:
            raise CommandFailed(f"{command} ended with {done.returncode}")
        if name:
            self.screens[name] = _neutral(f"$ {command}\n{done.stdout.strip()}\n")
        return done.stdout

    def until_step(self, run: str, step: int) -> None:
        """Wait until a run has taken so many steps. Raises `CommandFailed` if it never does."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            done = subprocess.run(
                ["hearth", "status", "--json"],
                cwd=ROOT,
                env=self._environment,
                capture_output=True,
                text=True,
            )
            runs = json.loads(done.stdout)["runs"] if done.stdout else []
            if any(each["name"] == run and (each["step"] or 0) >= step for each in runs):
                return
            time.sleep(2)
        raise CommandFailed(f"{run} has not come to step {step}")


def this_computer(terminal: Terminal) -> None:
    """Play an evening on this computer: a first run, then one that is stopped and resumed."""
    for run in ("third",):
        terminal.type(f"hearth runs --delete {run} --yes on", statuses=(0, 2, 3))
        shutil.rmtree(ROOT / "runs" / run, ignore_errors=True)
    terminal.type("./scripts/quickstart", "quickstart")
    terminal.type("hearth train smollm2-135m --preview 1", "preview")
    terminal.type("hearth train smollm2-135m --run third --max-steps 40 --wait off", "detached")
    terminal.until_step("third", 3)
    terminal.type("hearth status", "status", statuses=(0, 1))
    terminal.type("hearth stop", "stop")
    terminal.type("hearth resume", "resume")
    terminal.type("hearth runs", "runs")
    terminal.type("hearth doctor", "doctor", statuses=(0, 1))


SESSIONS: dict[str, Callable[[Terminal], None]] = {"here": this_computer}


def main() -> None:
    """Play the chosen sessions and rewrite the blocks of their plays."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.transcripts", description=__doc__)
    parser.add_argument(
        "sessions", nargs="*", default=[*SESSIONS], help=f"of {', '.join(SESSIONS)}"
    )
    parser.add_argument("--dry", action="store_true", help="play, and change no page")
    given = parser.parse_args()
    chosen = given.sessions
    if unknown := set(chosen) - SESSIONS.keys():
        parser.error(f"there is no session {', '.join(sorted(unknown))}")
    terminal = Terminal()
    try:
        for name in chosen:
            SESSIONS[name](terminal)
    except CommandFailed as error:
        sys.exit(f"transcripts: no page was changed: {error}")
    if given.dry:
        return
    pages = {page: page.read_text(encoding="utf-8") for page in PAGES}
    new = {page: rewritten(text, terminal.screens) for page, text in pages.items()}
    for page, text in new.items():
        page.write_text(text, encoding="utf-8")
    shown = {block.name for text in new.values() for block in blocks(text)}
    for name in sorted(terminal.screens.keys() - shown):
        print(f"transcripts: no page shows the play {name}")


def _neutral(screen: str) -> str:
    """Return a screen as it would be on a reader's computer: with neither home nor checkout."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen)
    return plain.replace(f"{ROOT}", "~/hearth").replace(str(Path.home()), "~")


if __name__ == "__main__":
    main()
