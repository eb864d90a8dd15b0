"""Action plugin: set up this controller's login by key on a machine."""

from __future__ import annotations

import fcntl
import getpass
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from hearth_controller.inventory import ssh
from hearth_controller.inventory.hostkeys import PublicKey

DOCUMENTATION = r"""
module: hearth_login
short_description: Log in by key, with the key that the user has
description:
  - Tries a login without a password first; where that works nothing else is done or looked at.
  - Else the user's key is added to the machine's C(authorized_keys) through the connection that
    there is, and the login is tried again. The key is C(ansible_ssh_private_key_file) if the
    inventory names one, else the first of the agent, else C(~/.ssh/id_ed25519), C(id_ecdsa) or
    C(id_rsa). Where there is none it is made. A key that is there is never overwritten.
  - Without SSH (C(ansible_connection=local)) there is nothing to do.
options:
  timeout:
    description: Seconds that a login may take.
    type: int
    default: 8
"""

RETURN = r"""
user:
  description: The user whose C(authorized_keys) has the key.
  type: str
  returned: when it was added
note:
  description: Which key was added.
  type: str
  returned: when it was
"""

# A user's default keys, in the order in which ssh tries them.
_DEFAULTS = ("id_ed25519", "id_ecdsa", "id_rsa")


def agent_keys() -> list[str]:
    """Return the public keys of this shell's SSH agent; empty without an agent."""
    done = subprocess.run(
        ["ssh-add", "-L"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


def without_passphrase(private: Path) -> str:
    """Return the public part of a private key file, or '' if it has a passphrase."""
    done = subprocess.run(
        ["ssh-keygen", "-y", "-P", "", "-f", private],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=10,
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def make(private: Path) -> None:
    """Create a key pair without a passphrase, unless it exists (another fork may be faster)."""
    private.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(private.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not private.exists():
            comment = f"{getpass.getuser()}@{platform.node()}"
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", private]
            subprocess.run(command, check=True, capture_output=True, timeout=30)
    finally:
        os.close(folder)


def choose_key(named: str, agent: list[str], home: Path) -> tuple[str, Path]:
    """Return the public key to use and '', or '' and the file to create it in.

    `named` is the private key that the inventory names, or ''. Raises AnsibleActionFail if all
    existing keys need a passphrase.
    """
    if named:
        candidates, new = [Path(named).expanduser()], Path(named).expanduser()
    elif agent:
        return agent[0], Path()
    else:
        candidates = [home / ".ssh" / name for name in _DEFAULTS]
        new = candidates[0]
    there = [path for path in candidates if path.exists()]
    for path in there:
        public = without_passphrase(path)
        if public or any(key.split()[:2] == _public_beside(path) for key in agent):
            return public or " ".join(_public_beside(path)), Path()
    if there:
        names = " and ".join(map(str, there))
        raise AnsibleActionFail(
            f"{names}: has a passphrase, and no agent holds it, so nothing could log in without a "
            'question. Either  eval "$(ssh-agent)" && ssh-add  before you play, or name a key of '
            "its own by ansible_ssh_private_key_file in the inventory: it is made if it is missing"
        )
    return "", new


def _public_beside(private: Path) -> list[str]:
    """Return type and text of the public key in the file beside a private one."""
    try:
        return private.with_name(f"{private.name}.pub").read_text().split()[:2]
    except OSError:
        return []


class ActionModule(ActionBase):
    """Runs on the controller; on the machine the module hearth_authorized."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return whether the machine was changed; fail if a key does not log in after all."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, arguments = self.validate_argument_spec({"timeout": {"type": "int", "default": 8}})
        if self._connection.transport != "ssh" or not self._refused(arguments["timeout"]):
            return result
        named = self._connection.get_option("private_key_file") or ""
        public, new = choose_key(named, agent_keys(), Path.home())
        check = self._task.check_mode
        if not public and check:
            return result | {"changed": True, "note": f"a key would be made in {new}"}
        made = ""
        if not public:
            make(new)
            public, made = without_passphrase(new), f", made in {new}"
        fingerprint = PublicKey.of(public).fingerprint
        answer = self._execute_module(
            "hearth_authorized",
            {"line": public, "marker": f"controller {fingerprint}"},
            task_vars=task_vars,
        )
        if answer.get("failed") or answer.get("unreachable"):
            return answer
        answer["note"] = f"logs in by key {fingerprint}{made}"
        if not check and (said := self._refused(arguments["timeout"])):
            answer |= {
                "failed": True,
                "msg": f"the key {fingerprint} is in ~/.ssh/authorized_keys of "
                f"{answer['user']}, but SSH still refuses it ({said}). On the machine see "
                "`sudo sshd -T | grep -iE 'pubkey|authorizedkeys|allow|deny'` and "
                "`journalctl -u ssh`",
            }
        return answer

    def _refused(self, timeout: int) -> str:
        """Try a new login by key; return why it failed, or ''."""
        option = self._connection.get_option
        first = {"PreferredAuthentications": "publickey", "ConnectTimeout": str(timeout)}
        return ssh.attempt([*ssh.command(option, first), option("host"), "true"], timeout + 10)
