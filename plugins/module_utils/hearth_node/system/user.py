"""The user that Ansible logs in as: rights, .ssh, and a systemd that outlasts the login."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from ansible.module_utils.hearth.base.systemd import LINGER


def login_user(environment: Mapping[str, str] = os.environ) -> pwd.struct_passwd:
    """Return the user that Ansible logged in as, from sudo's variables if run by sudo."""
    name = environment.get("SUDO_USER")
    return pwd.getpwnam(name) if name and os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


@contextmanager
def acting_as(uid: int, gid: int) -> Iterator[None]:
    """Give this process the rights of a user while the block runs, in all its threads.

    Files below a home are read and written so: there, root would follow any link of the user's.
    """
    if os.geteuid() == uid:
        yield
        return
    own_uid, own_gid, groups = os.geteuid(), os.getegid(), os.getgroups()
    try:
        os.setgroups([gid])
        os.setegid(gid)
        os.seteuid(uid)
        yield
    finally:
        os.seteuid(own_uid)
        os.setegid(own_gid)
        os.setgroups(groups)


def links_of(user: pwd.struct_passwd, names: Iterable[str]) -> str:
    """Return words that name the links among files in a user's .ssh, with their targets, or ''."""
    paths = {os.path.join(user.pw_dir, ".ssh", name): in_ssh(user, name) for name in names}
    links = [f"{path} leads to {target}" for path, target in paths.items() if path != target]
    return f" ({', '.join(links)})" if links else ""


def in_ssh(user: pwd.struct_passwd, name: str) -> str:
    """Return the path of a file in a user's .ssh, with links resolved so that they are kept."""
    return os.path.realpath(os.path.join(user.pw_dir, ".ssh", name))


def open_home(user: pwd.struct_passwd) -> str:
    """Return the finding that sshd ignores all keys of a user for the home's sake, or ''."""
    home, name = user.pw_dir, user.pw_name
    if writable_by_others(home):
        fault, cure = f"others may write to {home}", f"chmod go-w {home}"
    elif os.path.isdir(home) and os.stat(home).st_uid not in (0, user.pw_uid):
        fault, cure = f"{home} is another user's", f"sudo chown {name} {home}"
    else:
        return ""
    return f"{fault}, so that sshd (StrictModes) takes no key of {name}; on the machine: {cure}"


def writable_by_others(path: str) -> bool:
    """Return whether group or others may write to `path`; sshd ignores the keys in it then."""
    try:
        return bool(os.stat(path).st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    except FileNotFoundError:
        return False


_DROP_INS = "/etc/systemd/system/multi-user.target.d"


def linger_file(user: str) -> str:
    """Return the file that logind creates where the user's systemd outlasts the login."""
    return str(LINGER / user)


def drop_in(user: str) -> str:
    """Return the path of the drop-in that has the system start the user's systemd again."""
    return os.path.join(_DROP_INS, f"50-hearth-{user}.conf")


def drop_in_text(uid: int) -> str:
    """Return the content of the drop-in for a user's id."""
    return (
        "# Hearth: runs are units of this user, whose systemd starts again if it is ended.\n"
        f"[Unit]\nUpholds=user@{uid}.service\n"
    )


def lingers(user: str) -> bool:
    """Return whether both are set for the user."""
    return all(map(os.path.exists, (linger_file(user), drop_in(user))))
