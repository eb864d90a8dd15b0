"""Network changes that revert themselves unless confirmed.

The undo is armed first: a systemd timer on this machine, which needs neither the controller nor
the network. Only then is the candidate written to /run, which a power cut clears, and applied by a
unit, so that no SSH session has to survive it. Confirming moves the candidate into /etc.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible.module_utils.hearth.base.commands import TIMED_OUT, run
from ansible.module_utils.hearth_node.base import text_of, write_private
from ansible.module_utils.hearth_node.network.change import NetworkChange

FOLDER = "/run/hearth/network"
_UNDO, _APPLY = "hearth-network-undo", "hearth-network-apply"
_ANSWER_FIRST = 2  # seconds before the link changes, so that the module's answer is sent


class NotArmed(Exception):
    """The change cannot be armed, or no longer exists; the message says why."""


@dataclass
class Armed:
    """A change under way: `facts` for the caller to check it, `why` it was undone."""

    token: str
    candidate: NetworkChange
    facts: dict[str, Any]
    why: list[str] = field(default_factory=list)


def undo_script(candidate: NetworkChange) -> str:
    """Return the shell script that undoes the candidate."""
    return _script(
        f"Takes back what Hearth tried on {candidate.nic}.",
        f"sleep {_ANSWER_FIRST}",
        f"systemctl --quiet stop {_APPLY}.timer {_APPLY}.service",
        f"rm -f {shlex.quote(candidate.shadow)}",
        *(shlex.join(command) for command in candidate.undo),
        # Last, so that an interrupted undo starts again; and here, since an SSH session that starts
        # the undo early may be cut off by it.
        f"systemctl --quiet stop {_UNDO}.timer",
        f"touch {FOLDER}/undone",
    )


def apply_script(candidate: NetworkChange) -> str:
    """Return the shell script that applies the candidate."""
    shadow = shlex.quote(candidate.shadow)
    return _script(
        f"Tries a change of {candidate.nic}; {_UNDO}.timer takes it back.",
        f"exec 2>{FOLDER}/said",
        f"mkdir -p {shlex.quote(os.path.dirname(candidate.shadow))}",
        f"install -m 600 {FOLDER}/candidate {shadow}",
        *(shlex.join(command) for command in candidate.apply),
    )


def _script(about: str, *lines: str) -> str:
    return "\n".join(["#!/bin/sh", f"# {about}", *lines, ""])


def under_way() -> bool:
    """Return whether a change awaits confirmation on this machine."""
    return _systemctl("is-active", "--quiet", f"{_UNDO}.timer") == 0


def arm(candidate: NetworkChange, seconds: int, facts: dict[str, Any]) -> str:
    """Arm the undo, then have the candidate applied; return the token that confirms it.

    Raises NotArmed before anything is changed.
    """
    if not os.path.isdir("/run/systemd/system"):
        raise NotArmed("systemd does not run on this machine, so nothing could undo the change")
    if under_way():
        raise NotArmed(
            "a change of the network waits for its confirmation on this machine and takes itself "
            "back soon; play again in a minute or two"
        )
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER, mode=0o700)
    armed = Armed(secrets.token_hex(8), candidate, facts)
    _put("candidate", candidate.content)
    _put("undo.sh", undo_script(candidate))
    _put("apply.sh", apply_script(candidate))
    _save(armed)
    for unit in (f"{_UNDO}.service", f"{_APPLY}.service"):
        _systemctl("reset-failed", unit)
    _start(_UNDO, seconds)
    if not under_way():
        raise NotArmed("the timer that would undo the change did not start")
    _start(_APPLY, _ANSWER_FIRST)
    return armed.token


def load(token: str) -> Armed:
    """Return the change with this token. Raises NotArmed if this machine does not have it."""
    try:
        with open(f"{FOLDER}/plan.json", encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        raise NotArmed("this machine knows of no change of its network") from None
    if found["token"] != token:
        raise NotArmed("this machine has another change under way")
    return Armed(**found | {"candidate": NetworkChange(**found["candidate"])})


def disarm() -> bool:
    """Stop the undo; return False if it has begun already."""
    _systemctl("stop", f"{_UNDO}.timer")
    state = _systemctl("is-active", "--quiet", f"{_UNDO}.service")
    return state != 0 and not undone()


def finish(armed: Armed) -> None:
    """Remove the shadow of a confirmed candidate, whose content is now in /etc."""
    with suppress(FileNotFoundError):  # an interrupted confirmation removed it
        os.unlink(armed.candidate.shadow)
    for command in armed.candidate.then:
        run(*command, seconds=60)
    _put("kept", "")


def kept() -> bool:
    """Return whether the change is already confirmed, by a call whose answer was lost."""
    return os.path.exists(f"{FOLDER}/kept")


def undo_now(armed: Armed, why: list[str]) -> None:
    """Undo the change without waiting for the timer, and record why.

    If the timer has already fired, the undo is not started a second time.
    """
    armed.why = why
    _save(armed)
    # systemd drops the transient unit once it has run or its timer was stopped.
    if _systemctl("start", "--no-block", f"{_UNDO}.service") != 0 and not undone():
        _start(_UNDO, 1)


def undone() -> bool:
    """Return whether the undo has run to its end."""
    return os.path.exists(f"{FOLDER}/undone")


def mark_reported() -> None:
    """Note that the undo has been reported."""
    _put("reported", "")


def unreported_undo() -> str:
    """Return a message about an undo that has not been reported yet, or ''."""
    if not undone() or os.path.exists(f"{FOLDER}/reported"):
        return ""
    with open(f"{FOLDER}/plan.json", encoding="utf-8") as file:
        facts = json.load(file)["facts"]
    return (
        f"the last change of {facts['nic']} ({' or '.join(facts['goals'])}) was not confirmed, so "
        f"the machine took it back and has {', '.join(facts['addresses'])} as before"
    )


def errors() -> str:
    """Return the last error output of the commands that applied the change."""
    return "\n".join(text_of(f"{FOLDER}/said").strip().splitlines()[-6:])


def wait_undone(seconds: float) -> bool:
    """Wait until the undo has run; return whether it has."""
    end = time.monotonic() + seconds
    while not undone() and time.monotonic() < end:
        time.sleep(0.2)
    return undone()


def _start(unit: str, seconds: int) -> None:
    """Run a script as a transient systemd unit, `seconds` from now."""
    script = f"{FOLDER}/{unit.rpartition('-')[2]}.sh"
    command = [
        *("systemd-run", "--quiet", f"--unit={unit}", f"--on-active={seconds}"),
        *("--timer-property=AccuracySec=100ms", "/bin/sh", script),
    ]
    done = run(*command)
    if done.returncode:
        _systemctl("stop", f"{_UNDO}.timer")
        raise NotArmed(f"{unit} did not start: {done.stderr.strip()}")


def _systemctl(*words: str) -> int:
    """Return the status of a systemctl command. Raises TimeoutError if systemd does not answer."""
    done = run("systemctl", *words)
    if done.returncode == TIMED_OUT:
        raise TimeoutError(f"systemctl {words[0]}: {done.stderr}")
    return done.returncode


def _save(armed: Armed) -> None:
    _put("plan.json", json.dumps(asdict(armed)))


def _put(name: str, text: str) -> None:
    write_private(f"{FOLDER}/{name}", text)
