"""The run of a person's script, and its file.

`run.yml` of such a run says what was asked for: there is no preset, no data plan and none of the
trainer's settings. It lies where that of any run does, on every node and on the controller.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from hearth import __version__
from hearth.base.errors import ConfigError

_HEADER = "# Written by Hearth; the same file lies on every node of the run.\n"


@dataclass(frozen=True)
class ScriptRun:
    """What was asked for.

    Attributes:
        created: when, as ISO 8601.
        folder: the script's folder on the computer that it was asked for on.
        script: its path in there.
        arguments: of the script, with `{results}` and `{data}` as they were typed.
        data: file or folder that came along, by its path on that computer.
        code_sha256: of the folder as every node has it.
        data_sha256: of the data, likewise.
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
    def asked(self) -> dict[str, Any]:
        """What distinguishes this run from another one, by name."""
        return {
            "script": f"{self.folder}/{self.script}",
            "script_args": " ".join(self.arguments) or None,
            "script_data": self.data,
            "code": self.code_sha256[:12],
            "data": self.data_sha256 and self.data_sha256[:12],
        }


def script_text(run: ScriptRun) -> str:
    """Return the text of a run's `run.yml`."""
    asked = asdict(run)
    content = {"run": asked.pop("name"), "created": asked.pop("created"), "hearth": __version__}
    asked["arguments"] = list(run.arguments)
    return _HEADER + yaml.safe_dump({**content, "script": asked}, sort_keys=False)


def script_of(text: str, where: str) -> ScriptRun | None:
    """Return the run that `text` records, or None if it is no run of a script.

    Raises:
        ConfigError: it is one, but cannot be understood; `where` it stands is said.
    """
    try:
        content = yaml.safe_load(text)
        if not isinstance(content, dict) or "script" not in content:
            return None
        asked = content["script"] | {"arguments": tuple(content["script"]["arguments"])}
        return ScriptRun(content["run"], str(content["created"]), **asked)
    except yaml.YAMLError:
        return None
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{where}: this is not a run file ({error!r})") from error


def read_script(path: Path) -> ScriptRun | None:
    """Return the run of a script that is recorded at `path`; None if that is none, or not there.

    Raises:
        ConfigError: it is one, but cannot be understood.
    """
    try:
        return script_of(path.read_text(encoding="utf-8"), str(path))
    except OSError:
        return None
