"""The programs of a finished run on a node: check a request, do it, export, load lm-eval's tasks.

`check` and `finish` follow the settings in the run file; `again` follows its spec for the run named
there, and holds the node meanwhile if a part computes anything. `inspect` and
`export` are for the export playbook. Only `tasks` and `scores` import lm-eval; `scoring` starts
them.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hearth.after.export import ExportRequest, export_run
from hearth.after.export import check as check_export
from hearth.after.llama_cpp import SET
from hearth.after.request import ResultRequest, by_command
from hearth.base.entry import hush, loading, run_verb
from hearth.base.errors import ConfigError
from hearth.base.extras import extra_folder, packages_of, use_extra
from hearth.base.systems import glibc
from hearth.config import read_run
from hearth.config.layout import Layout
from hearth.config.run import find_run


def check(run_file: Path, _: dict[str, Any]) -> dict[str, Any]:
    """Find the obstacles to a request once the run in `run_file` has finished."""
    from hearth.after import finished

    run = read_run(run_file)
    finished.check(ResultRequest.from_settings(run.settings), run, print)
    return {}


def finish(run_file: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Evaluate, copy and push a finished run, as its `run_file` requests.

    The spec has the `hearth` command for the run's inventory, for messages.
    """
    from hearth.after import finished

    # An exit, which is recorded, as the end by a signal is not.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    run = read_run(run_file)
    again = by_command(spec["hearth"], run.name)
    request = ResultRequest.from_settings(run.settings)
    return {"facts": {"done": finished.afterwards(run_file.parent, request, again, print)}}


def again(_: Path | None, spec: dict[str, Any]) -> dict[str, Any]:
    """Do the `words` of a request for a `run` of this node; return that something `changed`.

    Raises `ConfigError` with the reason if a part fails.
    """
    from hearth.after import finished
    from hearth.supervisor.record import node_lock

    request = ResultRequest.typed(**{name: text for name, text in spec["words"].items() if text})
    folder = find_run(spec["run"], Layout.from_environment().results)
    run = read_run(folder / "run.yml")
    finished.check_finished(folder, request, print)
    workspace = os.environ.get("HEARTH_WORKSPACE")
    computes = request.eval and workspace
    with node_lock(Path(workspace), run.name) if computes else nullcontext():
        failed: list[str] = []

        def say(line: str) -> None:
            print(line)
            failed.append(line)

        if not finished.afterwards(folder, request, by_command(spec["hearth"], run.name), say):
            raise ConfigError(*failed[-2:])
    return {"facts": {"changed": True}}


def _requested(spec: dict[str, Any], layout: Layout) -> ExportRequest:
    """Return the request of an export's spec."""
    return ExportRequest(
        run=find_run(spec["run"], layout.results),
        to=spec["to"],
        precision=spec["precision"] or None,
        best=spec["best"],
        trust_remote_code=spec["trust_remote_code"],
    )


def inspect(_: Path | None, spec: dict[str, Any]) -> dict[str, Any]:
    """Check an export's request; return the packages of llama.cpp's tools that this node lacks.

    They come as M(hearth_supplies) reads them.
    """
    layout = Layout.from_environment()
    check_export(_requested(spec, layout), layout, print)
    there = spec["to"] == "merged" or extra_folder(SET).is_dir()
    return {
        "facts": {
            "kind": SET,
            "differing": [] if there else [{"name": name} for name in packages_of(SET)],
            "target": {
                "python": sys.version_info[:2],
                "machine": platform.machine(),
                "glibc": glibc(),
            },
        }
    }


def export(_: Path | None, spec: dict[str, Any]) -> dict[str, Any]:
    """Export a run; return the new folder, relative to the run's, and its files."""
    with loading():
        hush()
    layout = Layout.from_environment()
    request = _requested(spec, layout)
    wheels = Path(spec["wheels"]).expanduser() if spec["wheels"] else None
    target = export_run(request, layout, print, wheels)
    return {
        "facts": {
            "changed": True,
            "folder": str(target.relative_to(request.run)),
            "files": sorted(path.name for path in target.iterdir()),
        }
    }


def _loaded_tasks(spec: dict[str, Any]) -> list[Any]:
    """Return lm-eval's tasks of a spec, with the folder of lm-eval's `packages`."""
    use_extra(Path(spec["packages"]))
    with loading():
        from hearth.after.evaluator import load_tasks

        hush()
    return load_tasks(spec["tasks"])


def tasks(_: Path | None, spec: dict[str, Any]) -> dict[str, Any]:
    """Load the tasks, and return the number of them."""
    return {"facts": {"tasks": len(_loaded_tasks(spec))}}


def scores(_: Path | None, spec: dict[str, Any]) -> dict[str, Any]:
    """Score the run in `folder`, with its `best` weights, on at most `limit` examples a task."""
    loaded = _loaded_tasks(spec)
    from hearth.after.evaluator import compare

    found = compare(Path(spec["folder"]), loaded, spec["limit"], spec["best"], print)
    return {"facts": {"scores": [asdict(each) for each in found]}}


if __name__ == "__main__":
    verbs = (check, finish, again, inspect, export, tasks, scores)
    sys.exit(run_verb({verb.__name__: verb for verb in verbs}))
