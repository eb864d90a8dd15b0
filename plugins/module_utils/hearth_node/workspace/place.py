"""The workspace of a node: its folders, the training code in `scripts/`, and `hearth-lend`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.hearth.base.files import write_whole
from ansible.module_utils.hearth.base.locks import queued_runs
from ansible.module_utils.hearth_node.base import run_under_way, text_of
from ansible.module_utils.hearth_node.workspace.folder import differing, take_place, unpack
from ansible.module_utils.hearth_node.workspace.mark import (
    FOLDERS,
    LEND,
    claim,
    is_claimed,
    write_mark,
)

_MODE = 0o755

_SCRIPT = """\
#!/usr/bin/env bash
# Keep this machine for yourself, or lend it to runs; --help says more. Made by Hearth, and
# replaced by each launch and by `hearth provision --tags workspace`.
set -euo pipefail

workspace=$(cd "$(dirname "$(readlink -f "${{BASH_SOURCE[0]}}")")" && pwd)
python={python}
if [[ ! -x $python ]]; then
    echo "$workspace: there is no Python at '$python'; hearth provision makes it" >&2
    exit 2
fi
# Python must not take code from the current folder, since others may write to it.
export PYTHONPATH=$workspace/scripts PYTHONSAFEPATH=1
exec "$python" -m hearth.supervisor.lend --workspace "$workspace" "$@"
"""


def write_command(workspace: str, python: str, check: bool) -> bool:
    """Write the command, which calls this `python`; return whether it was another.

    With `check` nothing is written. Raises `OSError`.
    """
    path, text = os.path.join(workspace, LEND), _SCRIPT.format(python=shlex.quote(python))
    if text_of(path) == text and os.stat(path).st_mode & 0o777 == _MODE:
        return False
    if not check:
        write_whole(Path(path), text)
        os.chmod(path, _MODE)
    return True


def place_workspace(
    path: str,
    code: Mapping[str, str],
    archive: str | None,
    module: Any,
    python: str = "",
    files: Iterable[str] = (),
) -> dict[str, Any]:
    """Create the folders of the workspace at `path`, and its code from the `archive` if any.

    Code that a run under way or in the queue starts with stays, and so does a `scripts/` that is
    not Hearth's: then nothing is changed. `code` has the checksums by relative path; in the check
    mode of `module` nothing is written. `hearth-lend` calls `python`, and is not written without
    one. `files` are claimed for a later write.

    Returns:
        `changed`; whether there was code (`prepared`); the `differing` files of it; the run
        that kept them (`under_way`, or ''); those `files` that are Hearth's; and `findings`.
    """
    scripts, fresh = os.path.join(path, "scripts"), os.path.join(path, ".hearth-scripts")
    try:
        made = claim(path, [*FOLDERS, *files, *([LEND] if python else [])])
        if not is_claimed("scripts", made) or _is_foreign(scripts):
            finding = (
                f"{scripts} is there already and is not Hearth's; move it away, or set "
                "hearth_workspace to another folder"
            )
            return {"changed": False, "differing": [], "under_way": "", "findings": [finding]}
        places = [path, *(os.path.join(path, name) for name in FOLDERS)]
        missing = [place for place in places if not os.path.isdir(place)]
        if not module.check_mode:
            for place in missing:
                os.makedirs(place, exist_ok=True)
        marked = write_mark(path, made, module.check_mode)
        prepared = os.path.isdir(scripts)
        wrong = differing(scripts, code, let_be=["__pycache__"])
        under_way = (run_under_way(path) or "".join(queued_runs(path)[:1])) if wrong else ""
        if wrong and not under_way and archive and not module.check_mode:
            unpack(archive, fresh)
            take_place(fresh, scripts, module.tmpdir)
        command = bool(python) and is_claimed(LEND, made)
        command = command and write_command(path, python, module.check_mode)
    except OSError as error:
        finding = (
            f"the workspace {path} cannot be written ({error.strerror}: {error.filename}); "
            "give this user the right to, or set hearth_workspace to another folder"
        )
        return {"changed": False, "differing": [], "under_way": "", "findings": [finding]}
    return {
        "changed": bool(missing or marked or command or (wrong and not under_way)),
        "prepared": prepared,
        "differing": wrong,
        "under_way": under_way,
        "files": [name for name in files if is_claimed(name, made)],
        "findings": [],
    }


def _is_foreign(scripts: str) -> bool:
    """Return whether the folder of the code holds something, but not Hearth's package."""
    if not os.path.isdir(scripts):
        return os.path.lexists(scripts)
    return bool(os.listdir(scripts)) and not os.path.isdir(os.path.join(scripts, "hearth"))
