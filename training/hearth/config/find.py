"""Finds the folder of a run by its path or name."""

from __future__ import annotations

from pathlib import Path

from hearth.base.errors import ConfigError, did_you_mean
from hearth.base.text import listed


def find_run(given: str, results: Path) -> Path:
    """Return the folder of the run `given`: a folder's path, or the name of a run in `results`.

    A plain name is first looked for there: a play begins in a home with folders of any name.

    Raises `ConfigError` with the nearest names if there is no such run.
    """
    folder = Path(given)
    places = (results / given, folder) if folder.name == given else (folder, results / given)
    for place in places:
        if (place / "run.yml").is_file():
            return place.resolve()
    if (folder / "adapter_config.json").is_file():
        raise ConfigError(f"{given}: this is an adapter; name the folder of its run: runs/NAME")
    if (folder / "config.json").is_file():
        raise ConfigError(
            f"{given}: this is a model, not a run; name the folder of a run: runs/NAME"
        )
    names = [found.parent.name for found in results.glob("*/run.yml")]
    near = did_you_mean(folder.name, names)
    there = f"there are {listed(names)}" if names else "train one, or name the folder of a run"
    raise ConfigError(f"{given}: there is no such run in {results}{near}; {there}")
