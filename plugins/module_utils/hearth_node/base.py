"""Helpers shared by Hearth's modules on a node: paths, files, runs and commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible.module_utils.hearth.base.files import open_regular
from ansible.module_utils.hearth.base.locks import is_held
from ansible.module_utils.hearth.base.places import SUPERVISOR_LOCK, TOKENS

_LACKS_PACKAGE = re.compile(r"^ModuleNotFoundError: No module named '(?!hearth\b)(.+)'\Z", re.M)

_LACKS_COMMAND = re.compile(
    r": error: argument verb: invalid choice: |: No module named '?hearth\b", re.M
)


@dataclass
class Report:
    """A command's result: findings for people, facts for the play, or the whole record."""

    findings: list[str]
    facts: dict[str, Any] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)


def absolute(path: str) -> str:
    """Return `path` with `~` and variables of this node resolved."""
    return os.path.abspath(os.path.expanduser(os.path.expandvars(path)))


def text_of(path: str) -> str:
    """Return the text of a small file, line ends included, or '' if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read().decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def sendable(content: Any) -> Any:
    """Return JSON content whose texts are UTF-8: Ansible refuses an answer with any other."""
    if isinstance(content, str):
        return content.encode("utf-8", "replace").decode()
    if isinstance(content, dict):
        return {sendable(name): sendable(each) for name, each in content.items()}
    return [sendable(each) for each in content] if isinstance(content, (list, tuple)) else content


def nearest_folder(path: str) -> str:
    """Return `path`, or its nearest parent that exists."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def remove_path(path: str) -> None:
    """Remove a file or link, or a folder with its contents."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def run_under_way(workspace: str) -> str:
    """Return the name of the run whose supervisor holds the node's lock, or ''."""
    lock = os.path.join(workspace, SUPERVISOR_LOCK)
    if not is_held(Path(lock)):
        return ""
    try:
        return str(json.loads(text_of(lock))["run"])
    except (ValueError, KeyError, TypeError):
        return "of unknown name"  # it has just started, and has not written its name yet


def environment(
    workspace: str, node: str, models: str | None, secrets: dict[str, str]
) -> dict[str, str]:
    """Return the environment variables for Hearth's commands on a node."""
    given = {
        "HEARTH_WORKSPACE": workspace,
        "HEARTH_NODE": node,
        "PYTHONPATH": os.path.join(workspace, "scripts"),
        "PYTHONUNBUFFERED": "1",
        **{name: value for name, value in secrets.items() if value},
    }
    if models:
        given["HEARTH_MODELS"] = models
    return given


def hearth(module: Any, python: str, arguments: list[str], variables: dict[str, str]) -> Report:
    """Run `python -m ARGUMENTS` and return the JSON object in its last line of output.

    Any other outcome becomes a finding: a missing Python, a crash with its diagnosis.
    """
    if not os.access(python, os.X_OK):
        return Report([f"there is no Python at {python}; `hearth provision` makes it"])
    # A controller's shell must not leak them into commands on this computer: one that needs a token
    # gets it explicitly.
    for name in TOKENS:
        os.environ.pop(name, None)
    status, out, errors = module.run_command(
        [python, "-m", *arguments], environ_update=variables, handle_exceptions=True
    )
    lines = out.strip().splitlines()
    try:
        said = sendable(json.loads(lines[-1]))
        if not isinstance(said, dict):
            raise TypeError
    except (IndexError, ValueError, TypeError, RecursionError):
        if _LACKS_COMMAND.search(errors):
            return Report([_older(arguments, variables)])
        return Report([_crash(module, python, arguments[0], status, errors, variables)])
    findings = [str(finding) for finding in said.get("findings", [])]
    if status != 0 and not findings:
        name = " ".join(arguments[:2])
        findings = [_crash(module, python, name, status, errors, variables)]
    return Report(findings, said.get("facts", {}), said)


def _older(arguments: list[str], variables: dict[str, str]) -> str:
    """Return the finding for a command that the training code of the node does not have."""
    return (
        f"the training code in {variables['HEARTH_WORKSPACE']} has no command "
        f"`{' '.join(arguments[:2])}`: it is older than this computer's, which "
        "`hearth provision --tags workspace` brings, or the next run"
    )


def _crash(
    module: Any, python: str, name: str, status: int, errors: str, variables: dict[str, str]
) -> str:
    """Return the finding for a command that failed: its diagnosis, else the end of its output."""
    if lacks := _LACKS_PACKAGE.search(errors.strip()):
        return (
            f"{python} lacks the package {lacks[1]}; `hearth provision --tags python` installs "
            "what a node needs (for the nodes on this computer alone: ./scripts/setup)"
        )
    with tempfile.TemporaryDirectory() as folder:
        # Not through a pipe: a Python that cannot start closes it, and Ansible fails on that.
        path = os.path.join(folder, "error.log")
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(errors)
        known, diagnosis, _ = module.run_command(
            [python, "-m", "hearth.diagnose", path],
            environ_update=variables,
            handle_exceptions=True,
        )
    said = diagnosis.removeprefix("error: ") if known == 0 else ""
    last = "\n".join((said or errors).strip().splitlines()[-12:]) or "it said nothing"
    return f"{name} ended with status {status}:\n{last}"


def write_private(path: str, text: str) -> bool:
    """Write `text` to `path`, readable by its owner only; return whether anything changed."""
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == text and os.stat(path).st_mode & 0o077 == 0:
                return False
    except OSError:
        pass
    temporary = f"{path}.new"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return True
