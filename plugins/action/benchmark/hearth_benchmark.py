"""Action plugin: train on each node alone and on several together, and compare the speeds.

Every run is a play of train.yml, so that the benchmark measures real training. The runs, their
order and the conclusion are decided by `hearth_controller.benchmark`; this plugin only connects it
to Ansible.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from hearth import __version__
from hearth.base.errors import LaunchError
from hearth.base.files import alone, taken, write_whole
from hearth.config import run_of
from hearth.config.settings import for_run_name
from hearth_controller.base.paths import as_typed
from hearth_controller.base.screen import ON_TERMINAL, Screen
from hearth_controller.benchmark.history import last_alike
from hearth_controller.benchmark.nested import (
    cannot_ask,
    connecting,
    handed_on,
    how_far,
    last_words,
)
from hearth_controller.benchmark.request import asked_of, run_name, unfit, variables
from hearth_controller.benchmark.results import Benchmark, Circumstances, Ran, Took, finished
from hearth_controller.benchmark.text import coming, conclusion, ran, title
from hearth_controller.benchmark.timing import took
from hearth_controller.benchmark.turns import left
from hearth_controller.runs.story import read_lines

DOCUMENTATION = r"""
module: hearth_benchmark
short_description: Measure whether the cluster is faster than its nodes alone
description:
  - Works on the controller. Meant to run once.
options:
  verb:
    description:
      - V(begin) says what is to be measured, or goes on with what was interrupted.
      - V(stop) ends the runs that an interrupted benchmark may have left under way.
      - V(run) trains on the nodes whose turn it is.
      - V(conclude) says what came of it, and keeps it.
    type: str
    choices: [begin, stop, run, conclude]
    required: true
  folder:
    description: Folder of the controller that keeps benchmarks; of one of them, after V(begin).
    type: path
    required: true
  project:
    description: Folder of train.yml.
    type: path
    required: true
  run:
    description: The run to benchmark, as M(hearth_run) returns it; for V(begin).
    type: dict
    default: {}
  nodes:
    description: Names of the nodes, in order of rank; for V(begin).
    type: list
    elements: str
    default: []
  steps:
    description: Steps of a run that count; for V(begin).
    type: int
    default: 10
  warm_up:
    description: Steps before them that do not; for V(begin).
    type: int
    default: 2
  repeat:
    description: Runs of each configuration; for V(begin).
    type: int
    default: 1
  pairs:
    description: Whether every two nodes are measured too; for V(begin).
    type: bool
    default: false
  left_over:
    description: Names of runs to end; for V(stop).
    type: list
    elements: str
    default: []
"""

RETURN = r"""
folder:
  description: The benchmark's own folder, there while it is under way.
  type: path
  returned: with V(begin)
runs:
  description: How many runs are to be made at most.
  type: int
  returned: with V(begin)
left_over:
  description: Names of runs that an interrupted benchmark may have left on the nodes.
  type: list
  returned: with V(begin)
run:
  description: Name of the run that was made; empty if there was none left.
  type: str
  returned: with V(run)
say:
  description: What comes, how the run went, or what came of it all.
  type: str
  returned: if there is anything to say
findings:
  description: What stands in the way, or what could not be measured.
  type: list
  returned: with V(begin) and V(conclude)
"""

RECORD = "benchmark.json"
"""Name of the record in the folder of an unfinished benchmark."""

OPTIONS = ".options.json"
"""The extra vars of a play; the file exists only while the play runs."""


def version_of(project: Path) -> str:
    """Return Hearth's version, and its commit if the project is a checkout."""
    if not (project / ".git").exists() or shutil.which("git") is None:
        return __version__
    command = ["git", "-C", str(project), "describe", "--always", "--dirty"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return f"{__version__} {done.stdout.strip()}".strip()


def circumstances(names: Sequence[str], known: Mapping[str, Any], hearth: str) -> Circumstances:
    """Return kernel and driver of the nodes that have answered.

    `known` are the variables by node.
    """
    found: dict[str, dict[str, str]] = {}
    for name in names:
        kernel = known[name].get("ansible_facts", {}).get("kernel")
        driver = known[name].get("benchmark_driver", {}).get("content")
        facts = {
            "kernel": kernel and str(kernel),
            "driver": driver and base64.b64decode(driver).decode("ascii", "replace").strip(),
        }
        found[str(name)] = {what: version for what, version in facts.items() if version}
    return Circumstances(hearth, found)


def unfinished(folder: Path, nodes: Sequence[str]) -> dict[Path, Benchmark]:
    """Return the benchmarks of any of these nodes that were interrupted, the oldest first."""
    kept = {path.parent: Benchmark.read(path) for path in sorted(folder.glob(f"*/{RECORD}"))}
    return {
        path: each for path, each in kept.items() if each and set(each.asked.nodes) & set(nodes)
    }


def end(play: subprocess.Popen[bytes]) -> None:
    """Stop a running play, and return once it has exited.

    SIGINT comes first, as with Ctrl-C. Ansible sometimes loses it between two tasks, and would then
    go on and start the run after all.
    """
    for number, seconds in ((signal.SIGINT, 1), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        play.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            play.wait(seconds)
            return


@contextmanager
def kept_meanwhile(file: Path, content: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep a file, readable by its owner only, until the block ends or a signal ends this process.

    Ansible kills its workers in a signal handler, which bypasses `finally`. Such a signal also
    stops the plays in the yielded list.
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


class ActionModule(ActionBase):
    """Runs on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Run the requested verb."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(
            {
                "verb": {
                    "type": "str",
                    "choices": ["begin", "stop", "run", "conclude"],
                    "required": True,
                },
                "folder": {"type": "path", "required": True},
                "project": {"type": "path", "required": True},
                "run": {"type": "dict", "default": {}},
                "nodes": {"type": "list", "elements": "str", "default": []},
                "steps": {"type": "int", "default": 10},
                "warm_up": {"type": "int", "default": 2},
                "repeat": {"type": "int", "default": 1},
                "pairs": {"type": "bool", "default": False},
                "left_over": {"type": "list", "elements": "str", "default": []},
            }
        )
        folder = Path(given["folder"])
        self._project = Path(given["project"])
        match given["verb"]:
            case "begin":
                return result | self._begin(folder, given, task_vars["hostvars"])
            case "stop":
                with alone(folder):
                    for run in given["left_over"]:
                        self._stop(folder, run)
                return result
            case "run":
                with alone(folder):
                    return result | self._train(folder)
            case _:
                return result | self._conclude(folder)

    # -- the verbs -------------------------------------------------------------------------------

    def _begin(
        self, folder: Path, given: Mapping[str, Any], known: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Resume the unfinished benchmark with the same request, or create a new one."""
        wanted = run_of(given["run"]["file"], "run.yml")
        names = [str(name) for name in given["nodes"]]
        nodes = [name for name in names if name in given["run"]["nodes"]] or names
        findings = unfit(wanted, given["run"]["elastic"], given["warm_up"], given["steps"])
        findings += cannot_ask(context.CLIARGS)
        findings += [
            f"-e benchmark_{word}: {given[word]} cannot be used; {least} or more is wanted"
            for word, least in (("steps", 1), ("warm_up", 0), ("repeat", 1))
            if given[word] < least
        ]
        if findings:
            return {"findings": findings}
        counts = (given["warm_up"], given["steps"], given["repeat"], given["pairs"])
        now = circumstances(nodes, known, version_of(self._project))
        fresh = self._fresh(wanted.source.name, asked_of(wanted, nodes, *counts), now)
        begun = unfinished(folder, nodes)
        findings = [
            f"{each.name}: this benchmark of {', '.join(each.asked.nodes)} is under way: wait for "
            "its end, or end it with Ctrl-C where it plays (called again, it goes on where it was)"
            for path, each in begun.items()
            if taken(path)
        ]
        if findings:
            return {"findings": findings}
        same = [
            each
            for each in begun.values()
            if (each.asked, each.circumstances) == (fresh.asked, fresh.circumstances)
        ]
        benchmark = same[-1] if same else fresh
        own = folder / benchmark.name
        if not self._task.check_mode:
            for each in begun:
                (each / OPTIONS).unlink(missing_ok=True)
            own.mkdir(parents=True, exist_ok=True)
            benchmark.write(own / RECORD)
        lines = coming(benchmark, last_alike(benchmark, finished(folder)))
        return {
            "findings": [],
            "folder": str(own),
            "runs": len(left(benchmark)),
            "left_over": [each.last_run for each in begun.values() if each.last_run],
            "say": _indented(lines),
        }

    def _train(self, folder: Path) -> dict[str, Any]:
        """Train on the next nodes in turn, and record the measurements."""
        benchmark = self._read(folder)
        ahead = left(benchmark)
        if not ahead:
            return {"run": ""}
        turn, configuration = ahead[0]
        benchmark.attempts += 1
        run = benchmark.last_run = run_name(benchmark)
        benchmark.write(folder / RECORD)
        log = folder / f"{benchmark.attempts}.log"
        given = variables(benchmark, configuration, self._typed(), str(folder / "runs"))
        began = time.monotonic()
        name = title(configuration, benchmark.asked.nodes)
        failed = self._play(folder, "train.yml", given, log, name)
        seconds = round(time.monotonic() - began, 1)
        came: Took | None = None
        why = last_words(log.read_text(encoding="utf-8", errors="replace")) if failed else None
        if not failed:
            try:
                lines = read_lines(folder / "runs" / run / "metrics.jsonl")
                came = took(lines, benchmark.asked.warm_up, seconds)
            except LaunchError as error:
                why = str(error)
        if came:
            log.unlink()
        else:
            self._stop(folder, run)
        _forget(folder / "runs")
        benchmark.runs.append(Ran(configuration, turn, came, why))
        benchmark.write(folder / RECORD)
        earlier = last_alike(benchmark, finished(folder.parent))
        return {"run": run, "say": _indented([ran(benchmark, earlier)])}

    def _conclude(self, folder: Path) -> dict[str, Any]:
        """Write the results beside the folder, and keep only the logs of failures in it."""
        benchmark = self._read(folder)
        kept = folder.parent
        lines = conclusion(benchmark, last_alike(benchmark, finished(kept)))
        stem = kept / benchmark.name
        files = [stem.with_name(f"{stem.name}.{ending}") for ending in ("json", "txt", "svg")]
        benchmark.write(files[0])
        write_whole(files[1], "\n".join(lines) + "\n")
        # Imported here, since the plotting library takes a second to load.
        from hearth_controller.benchmark.drawing import picture

        write_whole(files[2], picture(benchmark))
        findings = [
            f"{title(each.configuration, benchmark.asked.nodes)}: {each.failure}"
            for each in benchmark.runs
            if each.failure
        ]
        for path in unfinished(kept, benchmark.asked.nodes):
            (path / RECORD).unlink()
            if path != folder or not findings:
                shutil.rmtree(path)
        if findings:
            findings.append(f"What was done until then: {as_typed(folder)}")
        lines = ["", *lines, "", f"kept: {', '.join(as_typed(path) for path in files)}"]
        return {"changed": True, "say": _indented(lines), "findings": findings}

    # -- plays of other playbooks ----------------------------------------------------------------

    def _stop(self, folder: Path, run: str) -> None:
        """Stop a run at once, if it is under way; any other obstacle is found later."""
        typed = self._typed()
        typed.pop("meeting_port", None)  # only train.yml takes it
        given = typed | {"run": run, "stop_now": True, "plan_runs": str(folder / "runs")}
        log = folder / "stop.txt"
        self._play(folder, "playbooks/stop.yml", given, log, run)
        log.unlink()
        _forget(folder / "runs")

    def _play(
        self, folder: Path, playbook: str, given: Mapping[str, Any], log: Path, name: str
    ) -> bool:
        """Run a playbook on the same inventory, output to `log`; return whether it failed."""
        options = folder / OPTIONS
        command = [
            str(Path(sys.executable).with_name("ansible-playbook")),
            str(self._project / playbook),
            *connecting(context.CLIARGS),
            *("-e", f"@{options}"),
        ]
        screen = Screen(self._display)
        # The extra vars may contain secrets.
        with kept_meanwhile(options, json.dumps(given)) as plays, log.open("wb") as said:
            process = subprocess.Popen(
                command,
                env={**os.environ, "ANSIBLE_NOCOLOR": "true"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
            plays.append(process)
            while process.poll() is None:
                if ON_TERMINAL:
                    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
                    screen.progress(f"{name}: {how_far(lines)}")
                time.sleep(0.2)
        screen.end()
        return process.returncode != 0

    # -- helpers ---------------------------------------------------------------------------------

    def _typed(self) -> dict[str, Any]:
        """Return the `-e` variables to pass on to every play."""
        return handed_on(json.loads(json.dumps(load_extra_vars(self._loader), default=str)))

    @staticmethod
    def _fresh(model: str, asked: Any, now: Circumstances) -> Benchmark:
        """Return a new benchmark that starts now."""
        time_ = datetime.now(UTC)
        name = f"{time_:%Y%m%d-%H%M%S}-{for_run_name(model, 'model')}"
        return Benchmark(name, time_.isoformat(timespec="seconds"), asked, now)

    @staticmethod
    def _read(folder: Path) -> Benchmark:
        """Return the record of the unfinished benchmark."""
        benchmark = Benchmark.read(folder / RECORD)
        if benchmark is None:
            raise AnsibleError(f"{folder / RECORD}: the record of the benchmark cannot be read")
        return benchmark


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"  {line}".rstrip() for line in lines)


def _forget(folder: Path) -> None:
    """Remove a folder, if it exists."""
    if folder.exists():
        shutil.rmtree(folder)
