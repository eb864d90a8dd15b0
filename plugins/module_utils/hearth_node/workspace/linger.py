"""Whether a user's systemd starts at boot, outlasts the login, and starts again if it is ended."""

from __future__ import annotations

import os

from ansible.module_utils.hearth.base.systemd import LINGER

_DROP_INS = "/etc/systemd/system/multi-user.target.d"


def linger_file(user: str) -> str:
    """Return the file with which logind notes that the user's systemd outlasts the login."""
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
