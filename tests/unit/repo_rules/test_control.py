"""The controller's code works with the packages of control.lock alone, without torch."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys

from support.repository import ROOT
from support.waiting import HANG

# Imports everything of the controller as Ansible and Python do, with some packages away.
IMPORT_ALL = """
import importlib, json, runpy, sys
from pathlib import Path

away = set(json.load(sys.stdin))

class Away:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in away:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Away())
failed = []
house = Path("controller")
for path in sorted(house.rglob("*.py")):
    name = ".".join(path.relative_to(house).with_suffix("").parts).removesuffix(".__init__")
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed.append(f"{path}: {error}")
for path in [*Path("plugins/action").rglob("*.py"), *Path("plugins/callback").rglob("*.py")]:
    try:
        runpy.run_path(str(path))
    except ImportError as error:
        failed.append(f"{path}: {error}")
print(*failed, sep="\\n")
"""


def pinned(lock: str) -> set[str]:
    text = (ROOT / "requirements" / f"{lock}.lock").read_text()
    return {name.lower() for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}


def test_the_controller_needs_no_package_of_the_training_side():
    nodes_only = (pinned("cpu") | pinned("gpu")) - pinned("control")
    assert "torch" in nodes_only
    away = [
        module
        for module, packages in importlib.metadata.packages_distributions().items()
        if {name.lower().replace("_", "-") for name in packages} <= nodes_only
    ]
    assert "torch" in away
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        input=json.dumps(away),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["", ""]
