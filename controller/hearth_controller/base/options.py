"""The options of an action plugin, read from its documentation so that they are written once."""

from __future__ import annotations

from typing import Any

import yaml


def argument_spec(documentation: str) -> dict[str, dict[str, Any]]:
    """Return the argument spec of the options that a plugin's `DOCUMENTATION` describes."""
    options = yaml.safe_load(documentation)["options"]
    return {
        name: {key: value for key, value in option.items() if key != "description"}
        for name, option in options.items()
    }
