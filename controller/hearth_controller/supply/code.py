"""The training code for a node: its checksums are compared there, and it is sent if they differ."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hearth_controller.supply.archive import send

_MADE_BY_TOOLS = ("__pycache__", ".egg-info", ".ruff_cache")


def code_files(source: Path) -> list[Path]:
    """Return the files of the training code that a node needs, relative to `source` and sorted."""
    files = (path.relative_to(source) for path in source.rglob("*") if path.is_file())
    return sorted(
        path for path in files if not any(part.endswith(_MADE_BY_TOOLS) for part in path.parts)
    )


def bring_code(
    action: Any,
    module: str,
    given: Mapping[str, Any],
    task_vars: Mapping[str, Any],
    scratch: str,
) -> dict[str, Any]:
    """Call a module that takes `code` and `archive`; return its result.

    `action` is the action plugin; of the arguments `given`, `source` is the folder of the code. The
    module is called again with an archive where its first result has `differing` files, unless a
    run is `under_way` there or this is check mode. `scratch` is that of `send`.
    """
    arguments = dict(given)
    source = Path(arguments.pop("source"))
    files = code_files(source)
    arguments["code"] = {
        name.as_posix(): hashlib.sha256((source / name).read_bytes()).hexdigest() for name in files
    }
    answer = action._execute_module(module, arguments, task_vars=task_vars)
    sends = answer.get("differing") and not answer.get("under_way")
    if sends and not action._task.check_mode:
        changed = answer["changed"]
        arguments["archive"] = send(action, source, files, scratch)
        answer = action._execute_module(module, arguments, task_vars=task_vars)
        answer["changed"] = bool(answer.get("changed") or changed)
    if run := answer.get("under_way"):
        answer["note"] = (
            f"run '{run}' is under way here and may start again with the training code that it "
            "began with: the code stays as it is until then"
        )
    return answer
