"""The run of a person's script, and its file `run.yml`.

`run.yml` records the request: there is no preset, no data plan and no trainer setting. Its place is
the same as for any run, on every node and on the controller.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from hearth import __version__
from hearth.base.errors import ConfigError
from hearth.base.files import open_regular

_HEADER = "# Written by Hearth; every node of the run has the same file.\n"


@dataclass(frozen=True)
class ScriptRun:
    """The request for a script run.

    Attributes:
        created: Time of the request (ISO 8601).
        folder: The script's folder on the requesting computer.
        script: Path of the script in that folder.
        arguments: The script's arguments, with `{results}` and `{data}` not yet replaced.
        data: Data file or folder, by its path on that computer.
        code_sha256: Checksum of the transferred folder.
        data_sha256: Checksum of the transferred data.
    """

    name: str
    created: str
    folder: str
    script: str
    arguments: tuple[str, ...]
    data: str | None
    code_sha256: str
    data_sha256: str | None

    @property
    def program(self) -> str:
        """The script's file name."""
        return Path(self.script).name

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that distinguish this run from another, by name."""
        return {
            "script": f"{self.folder}/{self.script}",
            "script_args": " ".join(self.arguments) or None,
            "script_data": self.data,
            "code": self.code_sha256[:12],
            "data": self.data_sha256 and self.data_sha256[:12],
        }


def script_text(run: ScriptRun) -> str:
    """Return the text of a run's `run.yml`."""
    fields = asdict(run)
    content = {"run": fields.pop("name"), "created": fields.pop("created"), "hearth": __version__}
    fields["arguments"] = list(run.arguments)
    return _HEADER + yaml.safe_dump({**content, "script": fields}, sort_keys=False)


def script_of(text: str, where: str) -> ScriptRun | None:
    """Return the script run that `text` records, or None if it records another kind of run.

    Raises:
        ConfigError: The record of a script run is invalid; the message names `where`.
    """
    try:
        content = yaml.safe_load(text)
        if not isinstance(content, dict) or "script" not in content:
            return None
        fields = {"name": content["run"], "created": str(content["created"]), **content["script"]}
        return TypeAdapter(ScriptRun).validate_python(fields)
    except (yaml.YAMLError, RecursionError):
        return None
    except (KeyError, TypeError, ValidationError) as error:
        raise ConfigError(f"{where}: this is not a run file ({error!r})") from error


def read_script(path: Path) -> ScriptRun | None:
    """Read the script run recorded at `path`; None if it is another kind of run or missing.

    Raises:
        ConfigError: The record of a script run is invalid.
    """
    try:
        with open_regular(path) as file:
            return script_of(file.read().decode(), str(path))
    except (OSError, UnicodeDecodeError):
        return None
