"""Facts about NVIDIA's driver shared by the Ansible modules and the controller.

Standard library only: modules ship this file to machines that have no Hearth yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

NVIDIA = "10de"
"""NVIDIA's PCI vendor id."""

FLOOR = 580
"""Oldest driver branch that torch's CUDA 13 supports."""

THEN_AGAIN = "then run `hearth provision` again"
"""Ending of findings that tell a person what to do."""

SIGNING_KEYS = {
    "debian": "/var/lib/dkms/mok.pub",
    "ubuntu": "/var/lib/shim-signed/mok/MOK.der",
}
"""The key that signs modules built on the machine, by system."""

_MAKE_KEY = {
    "debian": """\
  sudo apt-get install dkms mokutil openssl
  cd /var/lib/dkms && sudo test -e mok.pub || sudo openssl req -new -x509 -newkey rsa:2048 \\
    -nodes -days 36500 -subj "/CN=$(hostname) DKMS/" -keyout mok.key -outform DER -out mok.pub""",
    "ubuntu": """\
  sudo apt-get install shim-signed mokutil
  sudo test -e /var/lib/shim-signed/mok/MOK.der || sudo update-secureboot-policy --new-key""",
}


def enrol_command(system: str) -> str:
    """Return the command that enrols the key on a system, by the id of os-release."""
    if system == "ubuntu":
        return "sudo update-secureboot-policy --enroll-key"
    return f"sudo mokutil --import {SIGNING_KEYS['debian']}"


def how_to_enrol(system: str) -> str:
    """Return the steps that enrol the key for modules built on a machine of this system."""
    return f"""\
Secure Boot is on, and modules that are built on this machine (DKMS) load only once you have
enrolled its signing key, which a person must do at its own screen and keyboard:
{_MAKE_KEY.get(system, _MAKE_KEY["debian"])}
  {enrol_command(system):<45} # choose a password that you need once
  sudo systemctl reboot                         # then at the screen: Enroll MOK, the password
Or switch Secure Boot off in the firmware; {THEN_AGAIN}"""


def restart_warning(look: Mapping[str, Any]) -> str:
    """Return warnings, to follow the note on a driver that works, of what the next restart loses.

    `look` are the facts of Ansible's module `hearth_driver`.
    """
    lines = []
    if look["lockout"]:
        lines.append(f"{look['lockout']}: {look['lockout_remedy']}")
    if look["next_boot"]:
        lines.append(f"{look['next_boot']}, so the next restart loses the GPU: {look['remedy']}")
    return "".join(f"\nWARNING: {line}" for line in lines)


def not_restarted(look: Mapping[str, Any]) -> str:
    """Return why the machine must not be restarted yet, and what to do before."""
    return f"it must not be restarted yet: {look['lockout']}. First: {look['lockout_remedy']}"


def usable_gpus(memory: Mapping[str, Any]) -> int:
    """Return the number of GPUs that the driver lists and torch is built for.

    `memory` are the facts of a node from the Ansible module `hearth_look`.
    """
    return len(memory["gpus"]) if memory["cuda"] else 0


def ranks_of(memory: Mapping[str, Any], nproc: int) -> int:
    """Return a node's number of ranks: the inventory's `nproc`, or one per usable GPU for 0."""
    return nproc or max(1, usable_gpus(memory))


def major(version: str) -> int:
    """Return the branch of a version such as 580.126.09; 0 if there is none."""
    found = re.match(r"\d+", version)
    return int(found[0]) if found else 0
