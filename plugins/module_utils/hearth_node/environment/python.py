"""A node's Python environment: its interpreter and packages, and its name for conda.

While an environment is being created, a file `NAME.unfinished` stands beside it: this marker
distinguishes an interrupted one from one of the user's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ansible.module_utils.hearth.base.commands import run
from ansible.module_utils.hearth.base.nvidia import FLOOR, major
from ansible.module_utils.hearth.base.places import ADDED
from ansible.module_utils.hearth_node.base import absolute, text_of, write_private

_PROBE = """
import importlib.metadata, importlib.util, json, sys
print(json.dumps({
    "version": sys.version_info[:2],
    "pip": importlib.util.find_spec("pip") is not None,
    "packages": [[d.metadata["Name"], d.version] for d in importlib.metadata.distributions()],
}))
"""


@dataclass(frozen=True)
class Environment:
    """An existing environment: its Python version, whether it has pip, its packages."""

    version: tuple[int, int]
    pip: bool
    packages: dict[str, str] = field(default_factory=dict)


def normal(name: str) -> str:
    """Return a package name normalized as in PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def inspect_environment(python: str) -> Environment | None:
    """Return the environment of `python`, or None if it is missing or unfinished."""
    if not os.access(python, os.X_OK) or os.path.exists(_mark(folder_of(python))):
        return None
    done = run(python, "-c", _PROBE, seconds=None)
    if done.returncode:
        return None
    said = json.loads(done.stdout)
    packages = {normal(name): version for name, version in said["packages"] if name}
    return Environment(tuple(said["version"]), said["pip"], packages)


def differing(wanted: dict[str, str], here: dict[str, str]) -> list[dict[str, str]]:
    """Return the differing packages: `name`, the version it `has` ('' if none) and `wants`."""
    return [
        {"name": name, "has": here.get(name, ""), "wants": version}
        for name, version in wanted.items()
        if here.get(name) != version
    ]


def added(python: str) -> set[str]:
    """Return the names of the packages that Hearth has added to an environment on request."""
    try:
        return set(json.loads(text_of(_added_file(python)) or "[]"))
    except (ValueError, TypeError):
        return set()


def note_added(python: str, names: set[str]) -> None:
    """Record the names of the added packages in the environment."""
    if names:
        write_private(_added_file(python), json.dumps(sorted(names)) + "\n")
    elif os.path.exists(_added_file(python)):
        os.unlink(_added_file(python))


def _added_file(python: str) -> str:
    return os.path.join(folder_of(python), ADDED)


def folder_of(python: str) -> str:
    """Return the folder of the environment whose interpreter is `python`."""
    return os.path.dirname(os.path.dirname(python))


def lock_for(choice: str, driver: str, gpus: int) -> str:
    """Return `gpu` or `cpu`; `auto` means `gpu` if the driver is new enough and has a GPU."""
    if choice != "auto":
        return choice
    return "gpu" if major(driver) >= FLOOR and gpus else "cpu"


@contextmanager
def unfinished(folder: str) -> Iterator[None]:
    """Context manager: mark a folder as unfinished until the block ends without an error."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(_mark(folder), "w", encoding="utf-8"):
        pass
    yield
    os.unlink(_mark(folder))


def was_interrupted(folder: str) -> bool:
    """Return whether Hearth began to create this folder and did not finish."""
    return os.path.exists(_mark(folder))


def _mark(folder: str) -> str:
    return f"{folder}.unfinished"


PROFILE = "/etc/profile.d/hearth-conda.sh"

CONDA_PYTHON = "3.11"
"""Version that conda installs: the one that Hearth is tested with."""

_NAME = "hearth"
_MINIFORGE = "~/.local/share/hearth/miniforge"
_FOUND_BY_ALL = "~/.conda/envs"  # every conda of a user searches this folder


def is_own(python: str, miniforge: str) -> bool:
    """Return whether `python` is that of an environment in Hearth's Miniforge."""
    return os.path.dirname(folder_of(python)) == os.path.join(absolute(miniforge), "envs")


def link(miniforge: str) -> str:
    """Return the path of the link with the name.

    A Miniforge of one node, in a home that several share, has it in its own folder.
    """
    shared = absolute(miniforge) == absolute(_MINIFORGE)
    return os.path.join(absolute(_FOUND_BY_ALL) if shared else f"{absolute(miniforge)}/envs", _NAME)


def script(miniforge: str) -> str:
    """Return the text for /etc/profile.d.

    Every user's login shell reads it, root's too, so it sources a file of the shell's own user
    only. POSIX syntax, since some of these shells are not bash.
    """
    file = f'"{miniforge.replace("~", "$HOME", 1)}/etc/profile.d/conda.sh"'
    return (
        f"# Hearth: `conda activate {_NAME}` in a login shell, unless there is another conda.\n"
        f"if [ -O {file} ] && ! command -v conda >/dev/null 2>&1; then\n"
        f"    . {file}\n"
        "fi\n"
    )


def is_taken(path: str, folder: str) -> bool:
    """Return whether `path` is anything but a link to `folder`, such as a user's environment."""
    return os.path.lexists(path) and not (os.path.islink(path) and os.readlink(path) == folder)


def lacks_name(python: str, miniforge: str) -> bool:
    """Return whether conda does not find the environment of `python` by its name yet."""
    return is_own(python, miniforge) and (
        text_of(PROFILE) != script(miniforge) or not os.path.lexists(link(miniforge))
    )
