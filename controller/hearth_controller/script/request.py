"""Conversion of the variables after `-e` to the run of a script, with validation."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hearth.base.errors import ConfigError
from hearth.base.places import RUN_NAME
from hearth.config.settings import for_run_name
from hearth_controller.base.paths import as_typed
from hearth_controller.script.run import ScriptRun, read_script
from hearth_controller.script.tree import Tree, code_tree, data_tree

WORDS = frozenset({"script", "script_args", "script_data", "script_folder"})
"""Extra variables that describe a script run."""


@dataclass(frozen=True)
class ScriptRequest:
    """A run and the files to transfer to every node. `resumes` is true for an earlier run."""

    run: ScriptRun
    code: Tree
    data: Tree | None
    resumes: bool = False

    @property
    def code_place(self) -> str:
        """Path of the script folder's copy in a node's workspace."""
        return f"code/{self.run.name}"

    @property
    def data_place(self) -> str:
        """Path of the data in a node's workspace: one copy is shared by all runs."""
        return f"data/{self.run.data_sha256[:12]}" if self.run.data_sha256 else ""

    @property
    def spec(self) -> dict[str, Any]:
        """The specification for the supervisors, see `hearth.supervisor.spec`."""
        data = f"{self.data_place}/{Path(self.run.data).name}" if self.run.data else ""
        return {
            "script": f"{self.code_place}/{self.run.script}",
            "arguments": list(self.run.arguments),
            "folder": self.code_place,
            "data": data,
        }

    @property
    def summary(self) -> list[str]:
        """A summary of the files for the nodes, one line each."""
        lines = [f"code: {as_typed(self.run.folder)} ({self.code.summary})"]
        if self.data and self.run.data:
            lines.append(f"data: {as_typed(self.run.data)} ({self.data.summary})")
        return lines


def new_request(given: Mapping[str, Any], runs: Path, now: datetime | None = None) -> ScriptRequest:
    """Return the requested run.

    `given` holds `script`, and optionally the other `WORDS` and a name, `run`. `runs` is the folder
    of earlier runs, whose names a new run cannot reuse.

    Raises:
        ConfigError: with every problem found.
    """
    findings: list[str] = []
    now = now or datetime.now(UTC)
    script = Path(str(given["script"])).expanduser().absolute()
    findings += _script_errors(script)
    data = _path(given, "script_data", findings)
    folder = _path(given, "script_folder", findings) or script.parent
    # Resolve all paths first, because the checks below compare them.
    script, folder, data = script.resolve(), folder.resolve(), data and data.resolve()
    if not folder.is_dir():
        if "script_folder" in given and folder.exists():
            findings.append(f"script_folder: {as_typed(folder)} is not a folder")
    elif not script.is_relative_to(folder):
        findings.append(
            f"script_folder: {as_typed(script)} is not in {as_typed(folder)}; name a folder that "
            "holds the script, or leave it out"
        )
    name = _name(given, script, now, runs, findings)
    arguments = _arguments(given.get("script_args"), findings)
    if "{data}" in " ".join(arguments) and data is None:
        findings.append("script_args: {data} stands for what -e script_data= names; give that too")
    if findings:
        raise ConfigError(*findings)
    code, brought = _trees(folder, data)
    run = ScriptRun(
        name=name,
        created=now.isoformat(timespec="seconds"),
        folder=str(folder),
        script=script.relative_to(folder).as_posix(),
        arguments=arguments,
        data=str(data) if data else None,
        code_sha256=code.sha256,
        data_sha256=brought.sha256 if brought else None,
    )
    return ScriptRequest(run, code, brought)


def resumed_request(name: str, given: Mapping[str, Any], runs: Path) -> ScriptRequest | None:
    """Return the earlier run `name` for another launch; None if it is not a script run.

    Its folder and data must be unchanged. The arguments may differ.

    Raises:
        ConfigError: with every problem found.
    """
    earlier = read_script(runs / name / "run.yml")
    if earlier is None:
        return None
    findings = [
        f"{word}: a resumed run keeps its first value; start a new run to change it"
        for word in sorted(WORDS - {"script_args"})
        if word in given
    ]
    folder, data = Path(earlier.folder), Path(earlier.data) if earlier.data else None
    for path in filter(None, (folder, data)):
        if not path.exists():
            findings.append(f"resume: {as_typed(path)}, which '{name}' began with, is gone")
    arguments = _arguments(given["script_args"], findings) if "script_args" in given else None
    if findings:
        raise ConfigError(*findings)
    code, brought = _trees(folder, data)
    for path, sha256, began_with in (
        (folder, code.sha256, earlier.code_sha256),
        (data, brought and brought.sha256, earlier.data_sha256),
    ):
        if sha256 != began_with:
            findings.append(
                f"resume: {as_typed(path or '')} has changed since '{name}' began; every node "
                "keeps a copy from then; start a new run"
            )
    if findings:
        raise ConfigError(*findings)
    run = earlier if arguments is None else replace(earlier, arguments=arguments)
    return ScriptRequest(run, code, brought, resumes=True)


def _trees(folder: Path, data: Path | None) -> tuple[Tree, Tree | None]:
    """List the files for the nodes. Raises `ConfigError` with all problems of both trees."""
    findings: list[str] = []
    trees: list[Tree | None] = []
    for tree_of, path, besides in ((code_tree, folder, (data,)), (data_tree, data, ())):
        try:
            trees.append(tree_of(path, *besides) if path else None)
        except ConfigError as error:
            findings += error.findings
    if findings:
        raise ConfigError(*findings)
    code, brought = trees
    assert code is not None
    return code, brought


def _script_errors(script: Path) -> list[str]:
    """Return reasons why torchrun cannot start this script, as far as known beforehand."""
    shown = as_typed(script)
    if not script.is_file():
        return [f"script: there is no file {shown}"]
    if script.suffix != ".py":
        return [f"script: {shown} is not a Python file (.py), and torchrun starts no other"]
    try:
        ast.parse(script.read_bytes(), str(script))
    except SyntaxError as error:
        return [f"script: {shown}:{error.lineno}: this is not Python: {error.msg}"]
    except ValueError as error:  # such as a null byte
        return [f"script: {shown}: this is not Python: {error}"]
    except OSError as error:
        return [f"script: {shown} cannot be read: {error.strerror}"]
    return []


def _path(given: Mapping[str, Any], word: str, findings: list[str]) -> Path | None:
    """Return the file or folder given as the variable `word`, None without it."""
    if not (typed := str(given.get(word) or "")):
        return None
    path = Path(typed).expanduser().absolute()
    if not path.exists():
        findings.append(f"{word}: there is no file or folder {as_typed(path)}")
    return path


def _name(
    given: Mapping[str, Any], script: Path, now: datetime, runs: Path, findings: list[str]
) -> str:
    """Return the name of the run: the given one, or one derived from the script's."""
    if "run" not in given:
        return f"{for_run_name(script.stem, 'script')}-{now:%Y%m%d-%H%M%S}"
    name = str(given["run"])
    if not RUN_NAME.fullmatch(name):
        findings.append(
            f"run: {name!r} cannot be used; use letters, digits, '.', '_' and '-' only, starting "
            "with a letter or digit"
        )
    elif (runs / name / "run.yml").exists():
        findings.append(
            f"run: '{name}' exists already in {runs}; go on with it by resume={name}, or choose "
            "another name"
        )
    return name


def _arguments(typed: Any, findings: list[str]) -> tuple[str, ...]:
    """Return the script's arguments, split as by a shell."""
    if isinstance(typed, list):
        return tuple(map(str, typed))
    try:
        return tuple(shlex.split(str(typed or "")))
    except ValueError as error:
        findings.append(f"script_args: {typed!r} cannot be taken apart: {error}")
        return ()
