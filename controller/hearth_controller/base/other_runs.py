"""A run that another user of a machine has under way, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any


def describe_other_run(run: Mapping[str, Any]) -> str:
    """Return the run, its user, its start and its processors and GPUs as text."""
    since = datetime.fromtimestamp(run["since"]).astimezone().strftime("%Y-%m-%d %H:%M")
    count = run["processors"]
    used = [f"{count:g} processor{'s' * (count != 1)}"]
    if run["gpus"]:
        used.append(f"GPU {', '.join(map(str, run['gpus']))}")
    return f"run {run['run']} of the user {run['user']} since {since}, on {' and '.join(used)}"
