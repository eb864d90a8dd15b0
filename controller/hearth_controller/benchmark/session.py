"""A benchmark in its folder: begin or resume it, make its runs one after the other, conclude it."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hearth import __version__
from hearth.base.errors import LaunchError
from hearth.base.files import taken, write_whole
from hearth.base.nvidia import ranks_of, usable_gpus
from hearth.config import run_of
from hearth.config.settings import for_run_name
from hearth.record.story import read_story
from hearth_controller.base.paths import as_typed
from hearth_controller.benchmark.configure import objections, request_from, run_name, variables
from hearth_controller.benchmark.nested import error_message
from hearth_controller.benchmark.plays import OPTIONS, Plays
from hearth_controller.benchmark.results import (
    Benchmark,
    BenchmarkRequest,
    Circumstances,
    MeasuredRun,
    Ranks,
    Timing,
)
from hearth_controller.benchmark.text import announcement, conclusion, run_line, title
from hearth_controller.benchmark.turns import remaining

RECORD = "benchmark.json"
"""The record's name in the folder of a benchmark that is under way."""


def begin(
    folder: Path,
    options: Mapping[str, Any],
    known: Mapping[str, Any],
    cannot: Sequence[str],
    keep: bool,
) -> dict[str, Any]:
    """Resume the interrupted benchmark of the same request, or begin a new one.

    `folder` keeps all benchmarks, `options` are those of the plugin `hearth_benchmark`, `known` are
    Ansible's variables by node, `cannot` are findings about the command line. Without `keep`
    nothing is written.
    """
    wanted = run_of(options["run"]["file"], "run.yml")
    names = [str(name) for name in options["nodes"]]
    nodes = [name for name in names if name in options["run"]["options"]["nodes"]] or names
    findings = objections(wanted, options["warm_up"], options["steps"])
    findings += cannot
    findings += [
        f"-e {word}: {options[word]} cannot be used; 1 or more is wanted"
        for word in ("steps", "repeat")
        if options[word] < 1
    ]
    if findings:
        return {"findings": findings, "refused": True}
    counts = (options[word] for word in ("warm_up", "steps", "repeat"))
    request, interrupted = request_from(wanted, nodes, *counts), unfinished(folder, nodes)
    now = circumstances(nodes, known, version_of(Path(options["project"])))
    findings = [
        f"{each.name}: this benchmark of {', '.join(each.request.nodes)} is under way: wait for "
        "its end, or end it with Ctrl-C where it plays (called again, it goes on where it was)"
        for path, each in interrupted.items()
        if taken(path)
    ]
    if findings:
        return {"findings": findings}
    same = [
        each
        for each in interrupted.values()
        if (each.request, each.circumstances) == (request, now)
    ]
    benchmark = same[-1] if same else new_benchmark(wanted.source.name, request, now)
    own = folder / benchmark.name
    if keep:
        for each in interrupted:
            (each / OPTIONS).unlink(missing_ok=True)
        own.mkdir(parents=True, exist_ok=True)
        benchmark.write(own / RECORD)
    return {
        "findings": [],
        "folder": str(own),
        "runs": len(remaining(benchmark)),
        "left_over": [each.last_run for each in interrupted.values() if each.last_run],
        "say": _indented(announcement(benchmark)),
    }


def train(plays: Plays) -> dict[str, Any]:
    """Train on the nodes whose turn it is, and keep the measurement."""
    folder = plays.folder
    benchmark = _read(folder)
    ahead = remaining(benchmark)
    if not ahead:
        return {"run": ""}
    turn, configuration = ahead[0]
    benchmark.attempts += 1
    run = benchmark.last_run = run_name(benchmark)
    benchmark.write(folder / RECORD)
    log = folder / f"{benchmark.attempts}.log"
    given = variables(benchmark, configuration, plays.typed, str(folder / "runs"))
    began = time.monotonic()
    failed = plays.play("train.yml", given, log, title(configuration, benchmark.request.nodes))
    seconds = round(time.monotonic() - began, 1)
    timing, why = None, None
    if failed:
        why = error_message(log.read_text(encoding="utf-8", errors="replace"))
    else:
        try:
            story = read_story(folder / "runs" / run)
            timing = Timing.from_story(story, benchmark.request.warm_up, seconds)
        except LaunchError as error:
            why = str(error)
    if timing:
        log.unlink()
    else:
        plays.stop(run)
    plays.remove_run_folders()
    benchmark.runs.append(MeasuredRun(configuration.nodes, turn, timing, why, configuration.one))
    benchmark.write(folder / RECORD)
    return {"run": run, "say": _indented([run_line(benchmark)])}


def conclude(folder: Path, electricity_price: float = 0.0) -> dict[str, Any]:
    """Keep the result beside the benchmark's folder, and remove all of it but logs of failures.

    The price is that of a kWh, 0 if it is not known.
    """
    benchmark = _read(folder)
    kept = folder.parent
    lines = conclusion(benchmark, electricity_price)
    stem = kept / benchmark.name
    files = [stem.with_name(f"{stem.name}.{ending}") for ending in ("json", "txt")]
    benchmark.write(files[0])
    write_whole(files[1], "\n".join(lines) + "\n")
    findings = [
        f"{title(each.configuration, benchmark.request.nodes)}: {each.failure}"
        for each in benchmark.runs
        if each.failure
    ]
    for path in unfinished(kept, benchmark.request.nodes):
        (path / RECORD).unlink()
        if path != folder or not findings:
            shutil.rmtree(path)
    if findings:
        findings.append(f"Done before that: {as_typed(folder)}")
    lines = ["", *lines, "", f"kept: {', '.join(as_typed(path) for path in files)}"]
    facts = json.loads(files[0].read_text(encoding="utf-8"))
    answer = {"benchmark": facts, "files": [str(path) for path in files]}
    return {"changed": True, "say": _indented(lines), "findings": findings, "answer": answer}


def new_benchmark(model: str, request: BenchmarkRequest, now: Circumstances) -> Benchmark:
    """Return a benchmark that begins now."""
    began = datetime.now(UTC)
    name = f"{began:%Y%m%d-%H%M%S}-{for_run_name(model, 'model')}"
    return Benchmark(name, began.isoformat(timespec="seconds"), request, now)


def unfinished(folder: Path, nodes: Sequence[str]) -> dict[Path, Benchmark]:
    """Return the benchmarks of any of these nodes that were interrupted, the oldest first."""
    kept = {path.parent: Benchmark.read(path) for path in sorted(folder.glob(f"*/{RECORD}"))}
    return {
        path: each for path, each in kept.items() if each and set(each.request.nodes) & set(nodes)
    }


def version_of(project: Path) -> str:
    """Return Hearth's version, and its commit where the project is a checkout."""
    if not (project / ".git").exists() or shutil.which("git") is None:
        return __version__
    command = ["git", "-C", str(project), "describe", "--always", "--dirty"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return f"{__version__} {done.stdout.strip()}".strip()


def circumstances(names: Sequence[str], known: Mapping[str, Any], hearth: str) -> Circumstances:
    """Return kernel, driver and ranks of the nodes, as far as they have answered.

    `known` are the variables by node.
    """
    found: dict[str, dict[str, str]] = {}
    ranks: dict[str, Ranks] = {}
    for name in names:
        kernel = known[name].get("ansible_facts", {}).get("kernel")
        driver = known[name].get("benchmark_driver", {}).get("content")
        facts = {
            "kernel": kernel and str(kernel),
            "driver": driver and base64.b64decode(driver).decode("ascii", "replace").strip(),
        }
        found[str(name)] = {what: version for what, version in facts.items() if version}
        if look := known[name].get("benchmark_look", {}).get("facts"):
            count = ranks_of(look["memory"], look["own"]["nproc"])
            kind = "GPU" if usable_gpus(look["memory"]) >= count else "rank"
            ranks[str(name)] = Ranks(count, kind)
    return Circumstances(hearth, found, ranks)


def _read(folder: Path) -> Benchmark:
    """Return the record of the benchmark under way. Raises `LaunchError` if it cannot be read."""
    benchmark = Benchmark.read(folder / RECORD)
    if benchmark is None:
        raise LaunchError(f"{folder / RECORD}: the record of the benchmark cannot be read")
    return benchmark


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"  {line}".rstrip() for line in lines)
