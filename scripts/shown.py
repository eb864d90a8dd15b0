"""Shared code of the scripts in Python: enter .venv; play a playbook and print only its result."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHON = REPOSITORY / ".venv" / "bin" / "python"
_FAILED = 2
"""Bit of ansible-playbook's exit status for a task that failed on some node."""
_REFUSED = re.compile(r"^ansible-playbook: error: (.+)", re.MULTILINE)
"""The line of ansible-playbook, among pages of its help, that says what it does not understand."""


def enter_venv(name: str) -> None:
    """Start scripts/NAME again in .venv if this Python does not have Hearth; exit without .venv."""
    if importlib.util.find_spec("hearth") is not None:
        return
    if not PYTHON.exists() or Path(sys.prefix) == PYTHON.parent.parent:
        print(
            f"scripts/{name}: there is no .venv with Hearth; run ./scripts/setup", file=sys.stderr
        )
        sys.exit(2)
    os.execv(PYTHON, [str(PYTHON), str(REPOSITORY / "scripts" / name), *sys.argv[1:]])


def main(name: str, about: str | None, lines: str, metrics: str | None = None) -> int:
    """Play `playbooks/NAME.yml`, print its table or JSON, and return the exit status.

    `about` is the description for --help; `lines` names the function that formats the JSON as
    lines, as `module:function`, and `metrics` the one for Prometheus, if there is one.
    """
    parser = argparse.ArgumentParser(
        prog=f"scripts/{name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"Other arguments go to ansible-playbook: scripts/{name} -i inventory/home",
    )
    parser.add_argument(
        "--json", action="store_true", help=f"print JSON, as docs/{name}.schema.json describes it"
    )
    if metrics:
        parser.add_argument(
            "--prometheus",
            nargs="?",
            const="",
            metavar="FILE.prom",
            help="print metrics for Prometheus, or write them to a file of node_exporter's "
            "textfile collector and end with 0",
        )
    given, more = parser.parse_known_args()
    prometheus = vars(given).get("prometheus")
    target = Path(prometheus).absolute() if prometheus else None
    if target and (target.suffix != ".prom" or not target.parent.is_dir()):
        parser.error(
            f"--prometheus: {target} must end with .prom, since node_exporter reads no other "
            "files, and its folder must exist"
        )
    enter_venv(name)
    from hearth.base.files import write_whole
    from hearth.base.text import plain
    from hearth_controller.base.verdict import EXIT

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{name}.json")
        ansible = Path(sys.executable).with_name("ansible-playbook")
        option = json.dumps({f"{name}_file": str(file)})
        done = subprocess.run(
            [ansible, REPOSITORY / "playbooks" / f"{name}.yml", "-e", option, *more],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if not file.exists() and (refused := _REFUSED.search(done.stdout)):
            parser.error(refused[1])
        if not file.exists() or done.returncode & _FAILED:
            print(done.stdout, file=sys.stderr)
        if not file.exists():
            return EXIT["broken"]
        results = json.loads(file.read_text(encoding="utf-8"))
    as_metrics = prometheus is not None and metrics
    text = plain("\n".join(pkgutil.resolve_name(as_metrics or lines)(results)))
    if target:
        try:
            write_whole(target, text + "\n")
        except OSError as error:
            parser.error(f"--prometheus: {target} cannot be written: {error.strerror}")
        return 0
    print(json.dumps(results, indent=1) if given.json else text)
    return EXIT[results["verdict"]]
