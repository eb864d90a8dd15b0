"""Summaries of the runs recorded on a node, and their removal.

Reads the files of supervisor and trainer in the workspace. Needs neither the environment nor the
training code of the node, which may be broken.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.hearth.base.files import bytes_below, open_regular, read_object
from ansible.module_utils.hearth.base.locks import queued_runs
from ansible.module_utils.hearth.base.places import MANIFEST, QUEUE, RUN_NAME
from ansible.module_utils.hearth.base.slurm import queued
from ansible.module_utils.hearth.base.systemd import units_of
from ansible.module_utils.hearth.record.lines import METRICS, abridged, newest_step, seconds_of
from ansible.module_utils.hearth.supervisor.cause import ENDS
from ansible.module_utils.hearth_node.base import (
    remove_path,
    run_under_way,
    text_of,
)
from ansible.module_utils.hearth_node.runs.dashboard import curves


def summaries(workspace: str, now: float | None = None) -> list[dict[str, Any]]:
    """Return a summary of each run on this node, sorted by name.

    Each has its `name`, the text of its `run_file`, the supervisor's `record` (None if there is
    none), whether a supervisor is `alive`, the time since its last sign of life (`silent_seconds`),
    the stop file's request (`asked`, None without one), the newest job in Slurm's `queue` of a run
    whose job has no supervisor here (else None), the `turn` of a run in the queue of this node
    (`position`, `at` and `submitted`; else None), its abridged `metrics`, the newest
    `checkpoint` with `step` and `age_seconds`, the age of its TensorBoard `curves` in seconds (None
    without any), its `files`: bytes by path in the workspace, and a sentence for each file
    that is `damaged`. `now` is in seconds since 1970.

    A run whose files keep it from being summarised has its `name` and `damaged` alone.
    """
    now = now or time.time()
    results = os.path.join(workspace, "results")
    busy, queued = run_under_way(workspace), queued_runs(workspace)
    names = sorted(os.listdir(results)) if os.path.isdir(results) else []
    runs = [name for name in names if RUN_NAME.fullmatch(name)]
    return [_summary_or_damage(workspace, name, busy, queued, now) for name in runs]


def _summary_or_damage(
    workspace: str, name: str, busy: str, waiting: list[str], now: float
) -> dict[str, Any]:
    """Return the summary of a run, or why there is none: one run must not hide all others."""
    try:
        return _summary(workspace, name, busy, waiting, now)
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        return {"name": name, "damaged": [f"it cannot be summarised ({error!r})"]}


def _summary(
    workspace: str, name: str, busy: str, waiting: list[str], now: float
) -> dict[str, Any]:
    folder = os.path.join(workspace, "results", name)
    stop = os.path.join(folder, "stop")
    record, no_record = _record(os.path.join(folder, "supervisor.json"))
    run_file, no_run_file = _run_file(os.path.join(folder, "run.yml"))
    heard = seconds_of((record or {}).get("heartbeat"))
    job = record and busy != name and record["state"] not in ENDS and record.get("job")
    return {
        "name": name,
        "damaged": [each for each in (no_record, no_run_file) if each],
        "run_file": run_file,
        "record": record,
        "alive": busy == name or name in waiting,
        "silent_seconds": round(max(now - heard, 0), 1) if heard else None,
        "asked": text_of(stop) if os.path.exists(stop) else None,
        "queue": queued(name) if isinstance(job, str) else None,
        "turn": _json(text_of(os.path.join(workspace, QUEUE, f"{name}.json"))),
        "metrics": abridged(_metrics(workspace, name), now if busy == name else None),
        "checkpoint": _checkpoint(os.path.join(workspace, "checkpoints", name), now),
        "curves": _age(curves(workspace, name), now),
        "files": {path: size(os.path.join(workspace, path)) for path in paths(workspace, name)},
    }


def _record(path: str) -> tuple[dict[str, Any] | None, str]:
    """Return a supervisor's record, None without a sound one, and its fault, or ''."""
    if not os.path.exists(path):
        return None, ""
    record = _json(text_of(path))
    if record is None:
        return None, f"{path} is no record of a supervisor"
    if not isinstance(record.get("state"), str):
        return None, f"{path} does not name the run's state"
    return record, ""


def _run_file(path: str) -> tuple[str, str]:
    """Return the text of a run.yml, '' without a readable one, and its fault, or ''."""
    try:
        with open_regular(path) as file:
            return file.read().decode(), ""
    except FileNotFoundError:
        return "", ""
    except (OSError, ValueError) as error:
        return "", f"{path} cannot be read ({error})"


def slow_links(workspace: str) -> dict[str, Any] | None:
    """Return the links that hold up the run under way on this node (`hearth.plan.slow_links`)."""
    run = run_under_way(workspace)
    found = newest_step(_metrics(workspace, run)).get("slow_links") if run else None
    return found if isinstance(found, dict) else None


def _metrics(workspace: str, run: str) -> Path:
    return Path(workspace, "results", run, METRICS)


def _checkpoint(folder: str, now: float) -> dict[str, Any] | None:
    """Return the newest complete checkpoint in a folder: its name shows that it is complete."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    steps = [name for name in names if name.startswith("step-") and name[5:].isdecimal()]
    for name in sorted(steps, reverse=True):
        try:
            written = os.stat(os.path.join(folder, name, "checkpoint.json")).st_mtime
        except OSError:
            continue
        return {"step": int(name[5:]), "age_seconds": round(max(now - written, 0), 1)}
    return None


def _age(folder: str, now: float) -> float | None:
    """Return the seconds since a file in a folder was last written, or None without any."""
    written = []
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):
                written.append(entry.stat().st_mtime)
    return round(max(now - max(written), 0), 1) if written else None


def paths(workspace: str, run: str) -> list[str]:
    """Return the paths of a run's files on this node, relative to the workspace or absolute."""
    each = [
        os.path.join("results", run),
        os.path.join("checkpoints", run),
        os.path.join("code", run),
        os.path.join("logs", f"{run}.log"),
        os.path.join("logs", f".{run}.torchrun"),
        os.path.join("config", f"{run}.secrets"),
        os.path.join(QUEUE, f"{run}.json"),
        os.path.join(QUEUE, f"{run}.lock"),
        os.path.join("config", f"{run}.json"),
    ]
    # A unit remains only after the machine went down, and would look for the run at the next boot.
    if unit := units_of(workspace).get(run):
        each += [str(unit), str(unit.parent / "default.target.wants" / unit.name)]
    return [path for path in each if os.path.lexists(os.path.join(workspace, path))]


def size(path: str) -> int:
    """Return the bytes of a file, or of all files below a folder; links are not followed.

    The run may be writing there: files that vanish meanwhile count as 0.
    """
    if os.path.isdir(path) and not os.path.islink(path):
        return bytes_below(Path(path))
    with suppress(FileNotFoundError):
        return os.lstat(path).st_size
    return 0


def remove(workspace: str, run: str) -> None:
    """Remove a run's files, its results last, so that a second call can continue.

    Raises `OSError` if a file cannot be removed.
    """
    for path in reversed(paths(workspace, run)):
        remove_path(os.path.join(workspace, path))


def _json(text: str) -> dict[str, Any] | None:
    """Return the JSON object in a text, or None; one that is nested deep cannot be passed on."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) and _shallow(content) else None


def _shallow(content: Any, levels: int = 10) -> bool:
    """Return whether lists and objects in `content` are nested at most `levels` deep."""
    inner = content.values() if isinstance(content, dict) else content
    return not isinstance(content, (dict, list)) or (
        levels > 0 and all(_shallow(each, levels - 1) for each in inner)
    )


def whole_models(models: str) -> list[str]:
    """Return the folders of the cache `models` that lack no weights of their model, sorted."""
    found = []
    for manifest in sorted(Path(models).glob(f"*/{MANIFEST}")):
        content = read_object(manifest)  # None if it is not Hearth's, or is being written
        if content is not None and not content.get("absent"):
            found.append(manifest.parent.name)
    return found
