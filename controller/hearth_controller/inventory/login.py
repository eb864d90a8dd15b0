"""Log in by SSH key: choose or create the user's key, and try a login with it."""

from __future__ import annotations

import getpass
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hearth.base.errors import HearthError
from hearth.base.files import alone
from hearth_controller.inventory.reach import attempt, command

# A user's default keys, in the order in which ssh tries them.
_DEFAULTS = ("id_ed25519", "id_ecdsa", "id_rsa")


def prepare_key(named: str, check: bool) -> tuple[str, str]:
    """Return the public key to log in with, and a note if it was made; '' if `check` forbids that.

    `named` is the private key that the inventory names, or ''.
    """
    public, new = choose_key(named, agent_keys(), Path.home())
    if public:
        return public, ""
    if check:
        return "", f"a key would be made in {new}"
    make(new)
    return without_passphrase(new), f", made in {new}"


def refused(option: Callable[[str], Any], timeout: int) -> str:
    """Try a new login by key; return why it failed, or ''.

    `option` returns an option of the connection.
    """
    first = {"PreferredAuthentications": "publickey", "ConnectTimeout": str(timeout)}
    return attempt([*command(option, first), option("host"), "true"], timeout + 10)


def agent_keys() -> list[str]:
    """Return the public keys of this shell's SSH agent; empty without an agent."""
    return _output("ssh-add", "-L").splitlines()


def without_passphrase(private: Path) -> str:
    """Return the public part of a private key file, or '' if it has a passphrase."""
    return _output("ssh-keygen", "-y", "-P", "", "-f", private).strip()


def _output(*command: str | Path) -> str:
    """Return the output of a command, or '' if it fails."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10
    )
    return done.stdout if done.returncode == 0 else ""


def make(private: Path) -> None:
    """Create a key pair without a passphrase, unless it exists (another fork may be faster)."""
    private.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with alone(private.parent):
        if not private.exists():
            comment = f"{getpass.getuser()}@{platform.node()}"
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", private]
            subprocess.run(command, check=True, capture_output=True, timeout=30)


def choose_key(named: str, agent: list[str], home: Path) -> tuple[str, Path]:
    """Return the public key to use and '', or '' and the file to create it in.

    `named` is the private key that the inventory names, or ''. Raises `HearthError` if all
    existing keys need a passphrase.
    """
    if agent and not named:
        return agent[0], Path()
    defaults = [home / ".ssh" / name for name in _DEFAULTS]
    candidates = [Path(named).expanduser()] if named else defaults
    there = [path for path in candidates if path.exists()]
    for path in there:
        public = without_passphrase(path)
        if public or any(key.split()[:2] == _public_beside(path) for key in agent):
            return public or " ".join(_public_beside(path)), Path()
    if there:
        names = " and ".join(map(str, there))
        raise HearthError(
            f"{names}: has a passphrase, and no agent holds it, so nothing could log in without a "
            'question. Either  eval "$(ssh-agent)" && ssh-add  before you play, or name a key of '
            "its own by ansible_ssh_private_key_file in the inventory: it is made if it is missing"
        )
    return "", candidates[0]


def _public_beside(private: Path) -> list[str]:
    """Return type and text of the public key in the file beside a private one."""
    try:
        return private.with_name(f"{private.name}.pub").read_text().split()[:2]
    except OSError:
        return []
