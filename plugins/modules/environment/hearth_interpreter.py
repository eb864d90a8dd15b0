#!/usr/bin/python
"""Ansible module: create an empty Python environment with venv or Hearth's own conda."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_interpreter
short_description: Make the Python environment of a node
description:
  - Makes an environment, without packages, where there is none or where one was interrupted.
  - With O(mode=conda) Miniforge is first installed in the user's home. No conda that is there
    already is used or changed, and no start-up file of a shell is touched.
options:
  python:
    description: The Python that the environment will have.
    type: str
    required: true
  mode:
    description: What makes it.
    type: str
    choices: [conda, venv]
    required: true
  base:
    description: With O(mode=venv), Python that makes it.
    type: str
    default: python3
  miniforge:
    description: With O(mode=conda), folder of Hearth's own Miniforge.
    type: str
  installer:
    description: Miniforge's installer, where that is to be installed. On the node.
    type: path
  channel:
    description: With O(mode=conda), where conda gets that Python from; a name or an address.
    type: str
    default: conda-forge
"""

import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.commands import run
from ansible.module_utils.hearth_node.base import absolute
from ansible.module_utils.hearth_node.environment.python import (
    CONDA_PYTHON,
    folder_of,
    inspect_environment,
    unfinished,
    was_interrupted,
)


class Failed(Exception):
    """The environment cannot be created; it stays marked as unfinished until the next attempt."""


def make(folder: str, trouble: str, *command: str, **variables: str) -> None:
    """Let a command create `folder`. Raises Failed: `trouble`, and the end of its output."""
    if was_interrupted(folder):
        shutil.rmtree(folder, ignore_errors=True)
    elif os.path.lexists(folder):
        raise Failed(f"{folder} is there and does not work: move it away, then call this again")
    with unfinished(folder):
        done = run(*command, seconds=None, **variables)
        if done.returncode:
            last = "\n".join((done.stderr + done.stdout).strip().splitlines()[-8:])
            raise Failed(f"{trouble}: {last or 'it said nothing'}")


def make_conda(given: dict, folder: str) -> None:
    """Install Miniforge if an installer is given, and create the environment with its conda."""
    miniforge = absolute(given["miniforge"])
    apart = _apart(miniforge)
    if given["installer"]:
        trouble = f"Miniforge could not be installed into {miniforge}"
        make(miniforge, trouble, "bash", given["installer"], "-b", "-p", miniforge, **apart)
    name, channel, version = os.path.basename(folder), given["channel"], CONDA_PYTHON
    make(
        folder,
        f"conda could not make {name} with Python {version} from the channel {channel}. "
        "This machine must reach that channel once: connect it, name a mirror by "
        "python_channel, or set python_mode: venv. conda's last words",
        *(os.path.join(miniforge, "bin", "conda"), "create", "--yes", "--quiet", "-n", name),
        # Newer solvers no longer install pip together with Python.
        *("--override-channels", "-c", channel, f"python={version}", "pip"),
        **apart,
    )


def _apart(miniforge: str) -> dict[str, str]:
    """Return the variables that isolate Hearth's conda from the user's own."""
    return {
        "CONDA_ENVS_DIRS": os.path.join(miniforge, "envs"),
        "CONDA_PKGS_DIRS": os.path.join(miniforge, "pkgs"),
        "CONDA_REGISTER_ENVS": "false",
        "CONDA_AUTO_UPDATE_CONDA": "false",
        "PYTHONPATH": "",
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "str", "required": True},
            "mode": {"type": "str", "choices": ["conda", "venv"], "required": True},
            "base": {"type": "str", "default": "python3"},
            "miniforge": {"type": "str"},
            "installer": {"type": "path"},
            "channel": {"type": "str", "default": "conda-forge"},
        },
        required_if=[("mode", "conda", ["miniforge"])],
        supports_check_mode=True,
    )
    given, python = module.params, absolute(module.params["python"])
    if inspect_environment(python):
        module.exit_json(changed=False)
    folder, base = folder_of(python), given["base"]
    try:
        if given["mode"] == "conda" and not module.check_mode:
            make_conda(given, folder)
        elif not module.check_mode:
            make(folder, f"{base} -m venv {folder} does not work here", base, "-m", "venv", folder)
    except Failed as failure:
        module.fail_json(msg=str(failure))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}; correct that")
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
