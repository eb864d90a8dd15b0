"""The user that Ansible logs in as, even if a module runs as root, and that user's .ssh."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Mapping


def login_user(environment: Mapping[str, str] = os.environ) -> pwd.struct_passwd:
    """Return the user that Ansible logged in as, from sudo's variables if run by sudo."""
    name = environment.get("SUDO_USER")
    return pwd.getpwnam(name) if name and os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


def in_ssh(user: pwd.struct_passwd, name: str) -> str:
    """Return the path of a file in a user's .ssh, with links resolved so that they are kept."""
    return os.path.realpath(os.path.join(user.pw_dir, ".ssh", name))


def writable_by_others(path: str) -> bool:
    """Return whether group or others may write to `path`; sshd ignores the keys in it then."""
    try:
        return bool(os.stat(path).st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    except FileNotFoundError:
        return False
