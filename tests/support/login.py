"""Connections to a node whose login shell reads a .bashrc: a stand-in of ssh to this computer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from support.programs import stand_in

NOISE = ["", "echo welcome", "printf welcome", 'echo "{welcome}"', "echo welcome; sleep 0.1"]
"""Lines of a .bashrc that print, and one that does not."""


def login(folder: Path, bashrc: str = "") -> SimpleNamespace:
    """Return a stand-in of Ansible's connection to a node with this .bashrc."""
    ssh = str(stand_in(folder / "ssh", f'{bashrc}\nexec sh -c "$2"'))
    return SimpleNamespace(
        transport="ssh",
        get_option={"ssh_executable": ssh, "host": "desk"}.get,
        _build_command=lambda *words: [ssh.encode(), *words[2:]],
    )
