"""A stand-in of ssh: it reads a configuration as ssh does, and answers for each machine as told."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hearth_controller.discover.probe import MARK

_SCRIPT = """\
#!{python}
import json, os, sys
from pathlib import Path

folder, words = Path({folder!r}), sys.argv[1:]
if "-G" in words:
    os.execv({ssh!r}, [{ssh!r}, "-F", str(folder / "config"), *words])
host = words[words.index("--") + 1]
answer = json.loads((folder / (host + ".json")).read_text())
answer["given"] = sys.stdin.read()
answer["words"] = words
(folder / (host + ".call")).write_text(json.dumps(answer))
if answer["key"]:
    option = next(word for word in words if word.startswith("-oUserKnownHostsFile="))
    Path(option.partition("=")[2].split()[0]).write_text(answer["key"] + "\\n")
sys.stdout.write(answer["output"])
sys.stderr.write(answer["errors"])
sys.exit(answer["status"])
"""
_CONFIG = """
Host *
  ProxyCommand a-stand-in-reaches-every-machine
  UserKnownHostsFile {folder}/known_hosts
"""
DENIED = "me@host: Permission denied (publickey,password).\r\n"


class StandInSsh:
    """A folder with the command and the answers; `config` stands before the rest of ssh's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, config: str = "") -> None:
        self.folder = folder
        folder.mkdir()
        real = str(shutil.which("ssh"))
        script = _SCRIPT.format(python=sys.executable, folder=str(folder), ssh=real)
        (folder / "ssh").write_text(script)
        (folder / "ssh").chmod(0o755)
        (folder / "config").write_text(config + _CONFIG.format(folder=folder))
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def answers(
        self,
        host: str,
        *,
        report: Mapping[str, Any] | None = None,
        output: str = "",
        errors: str = "",
        status: int = 0,
        key: str = "",
    ) -> None:
        """Have a machine answer with a report of the probe, or with these texts and status.

        `key` is the line that ssh writes for a host key that it did not know.
        """
        said = output or (MARK + json.dumps(report) if report else "")
        answer = {"output": said, "errors": errors, "status": status, "key": key}
        (self.folder / f"{host}.json").write_text(json.dumps(answer))

    def denies(self, host: str, ways: str = "publickey,password", **more: str) -> None:
        """Have a machine refuse every key."""
        self.answers(host, errors=DENIED.replace("publickey,password", ways), status=255, **more)

    def call(self, host: str) -> dict[str, Any] | None:
        """Return the last call for a machine: its `words` and the text `given`; None without."""
        file = self.folder / f"{host}.call"
        return json.loads(file.read_text()) if file.exists() else None
