"""An Ansible module run as Ansible runs it on a node: arguments in, one JSON object out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.waiting import HANG

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
MODULE_UTILS = [str(PLUGINS / "module_utils"), str(PLUGINS.parent / "training")]
"""Folders that a module may import from, as in ansible.cfg."""

# Ansible packs a module with what it imports; here its folder is put where that would be.
_RUNNER = """
import json, runpy, sys
import ansible.module_utils
from ansible.module_utils.testing import patch_module_args
ansible.module_utils.__path__ += sys.argv[2:]
with patch_module_args(json.load(sys.stdin)):
    runpy.run_path(sys.argv[1], run_name="__main__")
"""


def call(module: str, check: bool = False, **arguments: Any) -> dict[str, Any]:
    (path,) = (PLUGINS / "modules").rglob(f"{module}.py")
    done = subprocess.run(
        [sys.executable, "-c", _RUNNER, str(path), *MODULE_UTILS],
        input=json.dumps({**arguments, "_ansible_check_mode": check}),
        capture_output=True,
        text=True,
        timeout=HANG,
        env=os.environ | {"PIP_NO_INDEX": "1"},
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)
