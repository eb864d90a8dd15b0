"""The name by which conda finds the environment of a node in a login shell."""

from __future__ import annotations

import os

from ansible.module_utils.hearth_node.base import absolute, text_of
from ansible.module_utils.hearth_node.environment.python import folder_of

PROFILE = "/etc/profile.d/hearth-conda.sh"

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
