"""The process that imports lm-eval: `check` loads tasks, `run` evaluates a run on them.

The spec names the folder of the `packages`, the `tasks`, and for `run` the `folder` of the run, the
`limit` of examples and whether its `best` weights count. Prints one line of JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hearth.base.command import run_verb
from hearth.base.extras import use_extra
from hearth.base.imports import loading


def _tasks(spec: dict[str, Any]) -> list[Any]:
    """Return the loaded tasks of a spec."""
    use_extra(Path(spec["packages"]))
    with loading():
        from hearth.base.quiet import hush
        from hearth.harness.tasks import load_tasks

        hush()
    return load_tasks(spec["tasks"])


def check(_: Path | None, spec: dict[str, Any]) -> dict[str, Any]:
    """Load the tasks, and return the number of their examples."""
    return {"facts": {"tasks": len(_tasks(spec))}}


def run(_: Path | None, spec: dict[str, Any]) -> dict[str, Any]:
    """Evaluate a run, and return its `scores`."""
    tasks = _tasks(spec)
    from hearth.harness.evaluate import compare
    from hearth.harness.scores import as_records

    scores = compare(Path(spec["folder"]), tasks, spec["limit"], spec["best"], print)
    return {"facts": {"scores": as_records(scores)}}


if __name__ == "__main__":
    sys.exit(run_verb({"check": check, "run": run}))
