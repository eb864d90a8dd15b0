"""Play other playbooks on the inventory of a benchmark; none of them outlives it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hearth_controller.base.screen import ON_TERMINAL, Display, Screen
from hearth_controller.benchmark.nested import last_output
from hearth_controller.launch.typed import SLURM_WORDS

OPTIONS = ".options.json"
"""The file with the variables of a play, there while the play is under way."""


@dataclass(frozen=True)
class Plays:
    """The plays of the benchmark in `folder`; `project` is the folder of train.yml.

    Every play gets the `connection_options` and the variables `typed`.
    """

    project: Path
    folder: Path
    connection_options: Sequence[str]
    typed: Mapping[str, Any]
    display: Display

    def stop(self, run: str) -> None:
        """End a run at once, if it is under way; the next play finds any other obstacle."""
        runs = str(self.folder / "runs")
        given = {**self.typed, "run": run, "_stop_now": True, "_plan_runs": runs}
        for word in ("cpu", "launcher", *SLURM_WORDS):  # of train.yml alone
            given.pop(word, None)
        log = self.folder / "stop.txt"
        self.play("playbooks/stop.yml", given, log, run)
        log.unlink()
        self.remove_run_folders()

    def play(self, playbook: str, given: Mapping[str, Any], log: Path, name: str) -> bool:
        """Play a playbook, its output to `log`; return whether it failed."""
        options = self.folder / OPTIONS
        command = [
            str(Path(sys.executable).with_name("ansible-playbook")),
            str(self.project / playbook),
            *self.connection_options,
            *("-e", f"@{options}"),
        ]
        screen = Screen(self.display)
        # The variables may hold a secret.
        with temporary_file(options, json.dumps(given)) as plays, log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, "ANSIBLE_NOCOLOR": "true"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            plays.append(process)
            while process.poll() is None:
                if ON_TERMINAL:
                    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
                    screen.progress(f"{name}: {last_output(lines)}")
                time.sleep(0.2)
        screen.end()
        return process.returncode != 0

    def remove_run_folders(self) -> None:
        """Remove the folders that plays made on the controller for their runs, if there are any."""
        if (self.folder / "runs").exists():
            shutil.rmtree(self.folder / "runs")


def end(play: subprocess.Popen[bytes]) -> None:
    """End a play that is under way, and return when it is gone.

    The first signal is that of Ctrl-C. Ansible now and then loses it between two tasks: the play
    would go on, and start the run after all.
    """
    for number, seconds in ((signal.SIGINT, 1), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        play.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            play.wait(seconds)
            return


@contextmanager
def temporary_file(file: Path, content: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep a file, for its owner alone, until the block ends or a signal ends this process.

    Ansible ends its workers within a handler of the signal, from where nothing gets to a `finally`.
    The plays that are put into the list are ended by such a signal, too.
    """
    plays: list[subprocess.Popen[bytes]] = []

    def interrupted(number: int, frame: Any) -> None:
        file.unlink(missing_ok=True)
        for play in plays:
            end(play)
        earlier[number](number, frame)

    earlier = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(handler := signal.getsignal(number))
    }
    for number in earlier:
        signal.signal(number, interrupted)
    try:
        file.touch(mode=0o600)
        file.write_text(content, encoding="utf-8")
        yield plays
    finally:
        file.unlink(missing_ok=True)
        for number, handler in earlier.items():
            signal.signal(number, handler)
