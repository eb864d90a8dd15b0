"""JSON schemas of a settings file and of a preset, for editors.

Run `python -m tests.support.schemas` at the repository's root to write them into docs/.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hearth.config.presets import Preset
from hearth.config.settings import Settings

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SWITCH = {"enum": [True, False, "on", "off", "yes", "no"]}
"""Values of a switch: YAML 1.2, which editors read, has no booleans on, off, yes and no."""


def schemas() -> dict[str, dict[str, Any]]:
    """Return both schemas by file name."""
    settings = Settings.model_json_schema() | {"title": "Settings of a Hearth run"}
    del settings["required"]  # a file may leave the model to the command line
    for entry in settings["properties"].values():
        _as_written(entry)
    preset = Preset.model_json_schema() | {"title": "A preset of Hearth"}
    preset["properties"]["settings"] = {
        key: settings[key] for key in ("type", "additionalProperties", "properties")
    }
    found = {"settings": settings, "preset": preset}
    return {f"{name}.schema.json": {"$schema": _DIALECT} | its for name, its in found.items()}


def _as_written(entry: dict[str, Any]) -> None:
    """Add the words that YAML's versions read differently to the schema of a setting, in place."""
    del entry["group"], entry["title"]
    if entry.get("type") == "boolean":
        del entry["type"]
        entry |= _SWITCH
    elif "off" in entry.get("enum", ()):  # YAML 1.1 reads a bare `off` as false
        del entry["type"]
        entry["enum"] = [*entry["enum"], False]


if __name__ == "__main__":
    for file, schema in schemas().items():
        Path("docs", file).write_text(json.dumps(schema, indent=1) + "\n")
