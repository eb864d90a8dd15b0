"""`hearth-lend` in a workspace: the command with which a person at the node keeps or lends it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from ansible.module_utils.hearth.base.files import write_whole
from ansible.module_utils.hearth_node.base import text_of

NAME = "hearth-lend"

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
# Whoever can write to the folder that one happens to be in must not lay code there for Python.
export PYTHONPATH=$workspace/scripts PYTHONSAFEPATH=1
exec "$python" -m hearth.supervisor.lend --workspace "$workspace" "$@"
"""


def write_command(workspace: str, python: str, check: bool) -> bool:
    """Write the command, which calls this `python`; return whether it was another.

    With `check` nothing is written. Raises `OSError`.
    """
    path, text = os.path.join(workspace, NAME), _SCRIPT.format(python=shlex.quote(python))
    if text_of(path) == text and os.stat(path).st_mode & 0o777 == _MODE:
        return False
    if not check:
        write_whole(Path(path), text)
        os.chmod(path, _MODE)
    return True
