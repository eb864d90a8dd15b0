"""systemd user unit of a run: it starts again at boot and needs no root.

Only where the user's services outlast the login ("lingering", which provisioning enables);
elsewhere, as in a container, the supervisor is a process group of its own.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from hearth.base.errors import LaunchError
from hearth.base.systemd import call, units_folder, user_systemctl
from hearth.supervisor.spec import Spec

STOP_MARGIN = 45
"""Seconds beyond the spec's grace for a stop: closing the mesh, and killing remaining ranks."""

MOST_RESTARTS = 3
"""Maximum number of restarts of a run's killed supervisor by systemd."""

LEFT = 75
"""Exit status of a supervisor that was ended although the run goes on; systemd restarts it."""

_MANAGERS = {
    ("systemctl", "is-system-running"): "this machine is being shut down",
    ("systemctl", "--user", "is-system-running"): "the systemd of this user is being stopped",
}
_MACHINE = Path("/etc/machine-id")
_ABNORMAL = frozenset({"signal", "core-dump", "watchdog", "timeout", "oom-kill"})


def unit_name(spec: Spec) -> str:
    """Return the name of the unit that carries a run.

    A workspace with the node's name may be in a home that other nodes share, with their units.
    """
    node = f"@{spec.node}" if spec.workspace.name == spec.node else ""
    return f"hearth-{spec.run}{node}.service"


def unit_text(spec: Spec, spec_file: Path, python: str, code: Path) -> str:
    """Return the text of the unit for this node's part in a run.

    `python` runs the supervisor, `code` is the folder that holds the package `hearth`. The token
    stays in the spec, which only its owner can read.
    """
    verb = f"{_word(python)} -m hearth.supervisor"
    of = f"--spec {_word(str(spec_file))}"
    return f"""\
# Written by Hearth for one run. It is removed when the run has ended on this node.
[Unit]
Description=Hearth: run {_plain(spec.run)} on {_plain(spec.node)}
{_only_here()}\
# As a failed unit it would stay listed.
CollectMode=inactive-or-failed

[Service]
Type=exec
Environment={_word(f"PYTHONPATH={code}")}
WorkingDirectory={_plain(str(spec.workspace))}
ExecStart={verb} run {of} --unit {unit_name(spec)}
ExecStopPost={verb} leave {of} --unit {unit_name(spec)}
# How the run ended stands in its record.
SuccessExitStatus=1 2 {LEFT}
# A supervisor that is killed comes back, ends what it left behind and joins the others again.
Restart=on-abnormal
RestartForceExitStatus={LEFT}
RestartSec=1
# A stop asks the supervisor alone, which lets the ranks end their step and keep a checkpoint.
KillMode=mixed
TimeoutStopSec={round(spec.stop_grace) + STOP_MARGIN}
# NCCL locks memory for RDMA cards; systemd gives as much of it as this user may have.
LimitMEMLOCK=infinity
# A rank that the kernel ends for memory is for the supervisor to report.
OOMPolicy=continue

[Install]
WantedBy=default.target
"""


def start_unit(spec: Spec, spec_file: Path) -> str:
    """Write, enable and start the unit of a run; return its name.

    Raises `LaunchError` if systemd refuses.
    """
    name = unit_name(spec)
    path = units_folder() / name
    # An earlier unit of this name may still be stopping, and would remove the new file.
    user_systemctl("stop", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    code = Path(__file__).resolve().parents[2]
    with path.open("w", encoding="utf-8") as file:
        file.write(unit_text(spec, spec_file, sys.executable, code))
        file.flush()
        os.fsync(file.fileno())
    for words in (["daemon-reload"], ["enable", "--now", name]):
        done = user_systemctl(*words)
        if done.returncode:
            remove_unit(spec)
            raise LaunchError(
                f"{spec.node}: systemctl --user {' '.join(words)} failed: {done.stderr.strip()}"
            )
    return name


def interruption(name: str | None) -> str:
    """Return the reason for a SIGTERM that is no request to stop the run, or '' for a request.

    `name` is the unit of this process: whoever stops that unit asks for a stop. A process without
    one can only be asked by a signal.
    """
    if why := _ending_manager():
        return why
    asked = name is None or user_systemctl("is-active", name).stdout.strip() == "deactivating"
    return "" if asked else "this process was ended, not its unit"


def comes_back(name: str) -> bool:
    """Return whether systemd will start a unit again that is ending now, for an open run."""
    if _ending_manager():
        return True
    left = os.environ.get("EXIT_STATUS") == str(LEFT)
    abnormal = left or os.environ.get("SERVICE_RESULT") in _ABNORMAL
    restarts = user_systemctl("show", "--property=NRestarts", "--value", name).stdout.strip()
    return abnormal and restarts.isdecimal() and int(restarts) < MOST_RESTARTS


def _ending_manager() -> str:
    """Return words on the systemd that is ending all its units: the machine's or the user's."""
    for command, why in _MANAGERS.items():
        if call(*command).stdout.strip() == "stopping":
            return why
    return ""


def is_active(name: str) -> bool:
    """Return whether a unit is active, starting or stopping."""
    return user_systemctl("is-active", name).stdout.strip() not in ("inactive", "failed", "unknown")


def stop_unit(name: str) -> None:
    """Ask systemd to stop a unit, without waiting for it."""
    user_systemctl("stop", "--no-block", name)


def remove_unit(spec: Spec) -> None:
    """Disable the unit of a run and remove its file."""
    name = unit_name(spec)
    user_systemctl("disable", name)
    (units_folder() / name).unlink(missing_ok=True)
    user_systemctl("daemon-reload")


def _only_here() -> str:
    """Return the condition that only this machine starts a unit, in a home that others share."""
    with suppress(OSError):
        return f"ConditionHost={_MACHINE.read_text(encoding='utf-8').strip()}\n"
    return ""


def _plain(text: str) -> str:
    """Escape `text` for a setting that takes the rest of its line literally."""
    return text.replace("%", "%%").replace("\n", " ")


def _word(text: str) -> str:
    """Quote `text` as one word of a command line or of Environment=."""
    for special in ("\\", '"', "%", "$"):
        text = text.replace(special, f"\\{special}" if special in '\\"' else special * 2)
    return f'"{text}"'
