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
  - The action plugin of the same name sends Miniforge's installer.
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
    description: Miniforge's installer, where that is to be installed. On the controller.
    type: path
  conda_version:
    description: With O(mode=conda), the Python that conda is asked for.
    type: str
    default: "3.11"
  channel:
    description: With O(mode=conda), where conda gets that Python from; a name or an address.
    type: str
    default: conda-forge
"""

import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import absolute, run
from ansible.module_utils.hearth_node.environment.python import (
    folder_of,
    look,
    unfinished,
    was_interrupted,
)


def said_by(*command: str, **variables: str) -> str:
    """Run a command; return '', or the last lines of its output if it failed."""
    done = run(*command, seconds=None, **variables)
    last = "\n".join((done.stderr + done.stdout).strip().splitlines()[-8:])
    return (last or "it said nothing") if done.returncode else ""


def clear(folder: str) -> None:
    """Remove an unfinished environment. Raises Failed if the folder has foreign files."""
    if was_interrupted(folder):
        shutil.rmtree(folder, ignore_errors=True)
    elif os.path.lexists(folder):
        raise Failed(f"{folder} is there and does not work: move it away, then call this again")


def make_venv(folder: str, base: str) -> None:
    """Create a venv. Raises Failed."""
    clear(folder)
    with unfinished(folder):
        if said := said_by(base, "-m", "venv", folder):
            raise Failed(f"{base} -m venv {folder} does not work here: {said}")


def install_miniforge(folder: str, installer: str) -> None:
    """Install Miniforge. Raises Failed."""
    clear(folder)
    with unfinished(folder):
        if said := said_by("bash", installer, "-b", "-p", folder, **_apart(folder)):
            raise Failed(f"Miniforge could not be installed into {folder}: {said}")


def make_conda(module: AnsibleModule, folder: str, miniforge: str) -> None:
    """Create the environment with Hearth's conda. Raises Failed."""
    name = os.path.basename(folder)
    clear(folder)
    channel, version = module.params["channel"], module.params["conda_version"]
    command = [
        *(os.path.join(miniforge, "bin", "conda"), "create", "--yes", "--quiet", "-n", name),
        *("--override-channels", "-c", channel, f"python={version}"),
    ]
    with unfinished(folder):
        if said := said_by(*command, **_apart(miniforge)):
            raise Failed(
                f"conda could not make {name} with Python {version} from the channel {channel}. "
                "This machine must reach that channel once: connect it, name a mirror by "
                f"python_channel, or set python_mode: venv. conda's last words:\n{said}"
            )


class Failed(Exception):
    """The environment cannot be created; it stays marked as unfinished until the next attempt."""


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
            "conda_version": {"type": "str", "default": "3.11"},
            "channel": {"type": "str", "default": "conda-forge"},
        },
        required_if=[("mode", "conda", ["miniforge"])],
        supports_check_mode=True,
    )
    python = absolute(module.params["python"])
    if look(python):
        module.exit_json(changed=False)
    if not module.check_mode:
        try:
            make(module, folder_of(python))
        except Failed as failure:
            module.fail_json(msg=str(failure))
        except OSError as error:
            module.fail_json(msg=f"{error.filename}: {error.strerror}; correct that")
    module.exit_json(changed=True)


def make(module: AnsibleModule, folder: str) -> None:
    """Create the environment in `folder`. Raises Failed."""
    params = module.params
    if params["mode"] == "venv":
        make_venv(folder, params["base"])
        return
    miniforge = absolute(params["miniforge"])
    if params["installer"]:
        install_miniforge(miniforge, params["installer"])
    make_conda(module, folder, miniforge)


if __name__ == "__main__":
    main()
