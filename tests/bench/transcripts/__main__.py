"""Play what the pages show, and write the transcripts into the pages.

Plays on this computer's two nodes, and with root on three machines of the lab. Runs that it
starts are named as in the pages and removed first, should they be there from an earlier call.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.lab import lab, machines, on
from support.person import Person
from support.transcripts import blocks, rewritten

from hearth_lab import plan
from tests.bench.lab import ROOT, CommandFailed

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_PATIENCE = 1800
"""A play that takes these seconds has hung."""


class Terminal:
    """A reader's terminal: runs commands and keeps their screens."""

    def __init__(
        self,
        folder: Path = ROOT,
        environment: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
    ) -> None:
        """Stand in `folder`; `before` are words that begin every command."""
        self.screens: dict[str, str] = {}
        self._folder, self._before = folder, [*before]
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "100",
            **(environment or {}),
        }

    def type(self, command: str, name: str = "", statuses: tuple[int, ...] = (0,)) -> str:
        """Run a command to its end and return its screen, kept under `name` if there is one.

        Raises `CommandFailed` for another exit status.
        """
        print(f"$ {command}", flush=True)
        done = subprocess.run(
            [*self._before, *shlex.split(command)],
            cwd=self._folder,
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
            screen = done.stdout.strip("\n")
            self.screens[name] = self._neutral(f"$ {command}\n{screen}\n")
        return done.stdout

    def until(self, reached: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until the status is as wanted. Raises `CommandFailed` if it never is."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            said = subprocess.run(
                [*self._before, "hearth", "status", "--json"],
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            ).stdout
            if said and reached(json.loads(said)):
                return
            time.sleep(2)
        raise CommandFailed("the run did not come so far")

    def _neutral(self, screen: str) -> str:
        """Return a screen as on a reader's computer: with neither home nor checkout of this one."""
        home = self._environment.get("HOME", str(Path.home()))
        return screen.replace(f"{self._folder}", "~/hearth").replace(home, "~")


def this_computer(_: Path) -> dict[str, str]:
    """Play an evening on this computer: a first run, then one that is stopped and resumed."""
    terminal = Terminal()
    terminal.type("hearth runs --delete third --yes on", statuses=(0, 2, 3))
    shutil.rmtree(ROOT / "runs" / "third", ignore_errors=True)
    terminal.type("./scripts/quickstart", "quickstart")
    terminal.type("hearth train smollm2-135m --preview 1", "preview")
    terminal.type("hearth train smollm2-135m --run third --max-steps 40 --wait off")
    terminal.until(lambda seen: _step(seen, "third") >= 3)
    terminal.type("hearth stop", "stop")
    terminal.type("hearth resume", "resume")
    terminal.type("hearth runs", "runs")
    return terminal.screens


def three_machines(folder: Path) -> dict[str, str]:
    """Play a first night on three machines of the lab, and lose one."""
    with machines(3):
        person = Person(folder)
        public = (person.ssh / "id_ed25519.pub").read_bytes()
        (person.ssh / "more").touch()
        for node in plan.nodes(3):
            on(node.name, "mkdir -m 700 .ssh && cat >.ssh/authorized_keys", public)
            with (person.ssh / "config").open("a") as config:
                config.write(f"Host {node.name}\n  HostName {node.address}\n  User {plan.USER}\n")
        terminal = Terminal(person.checkout, person.environment, person.within())
        terminal.type("hearth init --not-here --no-mdns --yes", "init")
        person.lab_settings()
        terminal.type("hearth provision", "provision")
        on("tower", "cp -r /opt/lab/models/smollm2-135m ai-cluster/models/")
        terminal.type("hearth distribute smollm2-135m", "distribute")
        short = "--sequence-length 128 --eval-held-out off --max-steps 400"
        terminal.type(f"hearth train smollm2-135m --run night {short} --wait off")
        terminal.until(lambda seen: _step(seen, "night") >= 2)
        lab("cut", "laptop")
        terminal.until(lambda seen: "laptop" not in _training(seen, "night"))
        terminal.type("hearth status", "status", statuses=(0, 1))
        terminal.type("hearth stop", statuses=(0, 1))
        terminal.type("hearth doctor", "doctor", statuses=(0, 1, 3))
    return terminal.screens


def _training(seen: Mapping[str, Any], run: str) -> list[str]:
    """Return the nodes of a run that train, by a status."""
    nodes = next(each["nodes"] for each in seen["runs"] if each["name"] == run)
    return [node["name"] for node in nodes if node["state"] == "running"]


def _step(seen: Mapping[str, Any], run: str) -> int:
    """Return the step of a run in a status; 0 before the first."""
    return max((each["step"] or 0 for each in seen["runs"] if each["name"] == run), default=0)


SESSIONS: dict[str, Callable[[Path], dict[str, str]]] = {
    "here": this_computer,
    "lab": three_machines,
}


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
    screens: dict[str, str] = {}
    try:
        for name in chosen:
            with tempfile.TemporaryDirectory(prefix="hearth-pages-", dir="/var/tmp") as folder:
                screens |= SESSIONS[name](Path(folder))
    except CommandFailed as error:
        sys.exit(f"transcripts: no page was changed: {error}")
    if given.dry:
        return
    wrong = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        try:
            page.write_text(rewritten(text, screens), encoding="utf-8")
        except ValueError as error:
            wrong.append(f"{page.relative_to(ROOT)} stays as it was: {error}")
    shown = {block.name for page in PAGES for block in blocks(page.read_text(encoding="utf-8"))}
    for name in sorted(screens.keys() - shown):
        wrong.append(f"no page shows the play {name}")
    if wrong:
        sys.exit("\n".join(f"transcripts: {each}" for each in wrong))


if __name__ == "__main__":
    main()
