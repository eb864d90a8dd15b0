"""The verbs of a node's supervisor. Each prints one JSON object; errors end with status 2."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from hearth.base.errors import HearthError, LaunchError
from hearth.base.locks import is_in_queue
from hearth.base.systemd import has_manager
from hearth.supervisor.cause import ENDS
from hearth.supervisor.in_turn import run_in_turn, supervise
from hearth.supervisor.job import cancel, queue_record, submit
from hearth.supervisor.preflight import ready, ready_again
from hearth.supervisor.queue import leave_queue
from hearth.supervisor.record import (
    close_record,
    held_by,
    last_record,
    lock_holder,
    read_record,
)
from hearth.supervisor.requests import STOP, STOP_NOW
from hearth.supervisor.spec import Spec, forget_secrets, load_spec, stop_file, with_secrets
from hearth.supervisor.unit import LEFT, comes_back, is_active, remove_unit, start_unit, stop_unit

START_TIMEOUT = 60.0
ERROR = "hearth: error: "


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; return 0, 1 for a run that failed, 2 for an error, LEFT if the run goes on."""
    given = _parser().parse_args(arguments)
    try:
        return int(given.verb(given))
    except HearthError as error:
        for finding in error.findings:
            print(f"{ERROR}{finding}", file=sys.stderr)
        _show({"ok": False, "findings": error.findings})
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hearth.supervisor", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for name, verb, text in (
        ("start", _start, "start the supervisor in the background and return"),
        ("submit", _submit, "give the job that starts all supervisors to Slurm"),
        ("run", _run, "be the supervisor, in the foreground; go on with a run that was cut off"),
        ("leave", _leave, "tidy up after a supervisor that was a unit of systemd"),
    ):
        sub = verbs.add_parser(name, help=text, description=text)
        sub.add_argument("--spec", type=Path, required=True, help="the node's launch spec (JSON)")
        if verb in (_run, _leave):
            sub.add_argument("--unit", help="the systemd unit that this is")
        sub.set_defaults(verb=verb)
    text = "ask the whole run to stop after its step"
    sub = verbs.add_parser("stop", help=text, description=text)
    sub.add_argument("--workspace", type=Path, required=True, help="the node's workspace")
    sub.add_argument("--run", required=True, help="the name of the run")
    sub.add_argument("--now", action="store_true", help="kill, do not wait for the step")
    sub.set_defaults(verb=_stop)
    return parser


def _run(given: argparse.Namespace) -> int:
    """Supervise; after a reboot, first check the record for whether the run is still open."""
    spec = load_spec(given.spec)
    os.environ.update(spec.environment)  # a unit of systemd has not inherited it
    spec = with_secrets(spec, given.spec)
    if not given.unit:  # without a unit it is never restarted, so the secrets are not read again
        forget_secrets(given.spec)
    last = last_record(spec)
    if last and last.get("state") in ENDS:
        print(f"hearth: run {spec.run} has {last['state']} here already", file=sys.stderr)
        return 0
    if spec.queue and not (last and _has_begun(last)):
        record = run_in_turn(spec, given.unit, fresh=last is None)
    elif last is None:
        record = supervise(ready(spec), given.unit)
    else:
        queued = last.get("state") == "queued"
        try:
            spec = ready(spec) if queued else ready_again(spec)
        except LaunchError as error:
            when = "" if queued else f"after {spec.node} came back: "
            close_record(spec, last, f"{when}{' '.join(error.findings)}")
            raise
        leave_queue(spec.workspace, spec.run)
        record = supervise(spec, given.unit, last if _has_begun(last) else None)
    if record.state not in ENDS:
        return LEFT
    return 1 if record.state == "failed" else 0


def _has_begun(last: dict[str, Any]) -> bool:
    """Return whether the ranks of a recorded run have trained on this node."""
    return bool(last.get("state") == "running" or last.get("launches"))


def _leave(given: argparse.Namespace) -> int:
    """Remove unit and secrets, and close the record where the killed supervisor could not.

    Do nothing if systemd restarts the supervisor of an open run, now or at the next boot.
    """
    spec = load_spec(given.spec)
    last = last_record(spec)
    if last and last.get("state") not in ENDS:
        if (spec.return_timeout or last.get("state") == "queued") and comes_back(given.unit):
            return 0
        how = " ".join(os.environ.get(name, "?") for name in ("EXIT_CODE", "EXIT_STATUS"))
        close_record(spec, last, f"the supervisor of {spec.node} ended without a word ({how})")
    if last:  # otherwise a launch that is about to begin has written new ones
        forget_secrets(given.spec)
        leave_queue(spec.workspace, spec.run)
    remove_unit(spec)
    return 0


def _start(given: argparse.Namespace) -> int:
    """Start a detached supervisor; if the run is already active here, only report it."""
    spec, path = ready(load_spec(given.spec)), given.spec.resolve()
    holder = lock_holder(spec.workspace)
    if holder and holder["run"] != spec.run and not spec.queue:
        raise LaunchError(f"{spec.node}: {held_by(spec.workspace, holder)}")
    if (holder and holder["run"] == spec.run) or is_in_queue(spec.workspace, spec.run):
        record = _unless_ending(spec)
        if record["alive"]:
            _show({"ok": True, "started": False} | _start_facts(record))
            return 0
    spec.record.unlink(missing_ok=True)  # an old record would mean a reboot
    leave_queue(spec.workspace, spec.run)  # as would its place in the queue
    if spec.slurm:
        started = queue_record(spec)
    elif spec.unit and has_manager():
        started = _as_unit(spec, path)
    else:
        started = _as_process(spec, path)
    if started["state"] == "failed":
        raise LaunchError(f"{spec.node}: {started['cause']['message']}")
    _show({"ok": True, "started": True} | _start_facts(started))
    return 0


def _submit(given: argparse.Namespace) -> int:
    """Submit the job of the run, whose parts have been started on all nodes."""
    _show({"ok": True, "started": True, "job": submit(load_spec(given.spec))})
    return 0


def _start_facts(record: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON answer of `start`: the supervisor's process, state and unit, if any.

    A run that does not begin yet has `why`.
    """
    waits = record["state"] == "queued" and record["cause"]
    why = {"why": record["cause"]["message"]} if waits else {}
    return {key: record[key] for key in ("pid", "state", "unit")} | why


def _as_unit(spec: Spec, path: Path) -> dict[str, Any]:
    """Start the supervisor as a systemd unit and return its first record."""
    unit = start_unit(spec, path)
    record = _first_record(spec, over=lambda: not is_active(unit))
    if record is None:
        stop_unit(unit)
        raise LaunchError(
            f"{spec.node}: the supervisor did not start: journalctl --user --unit {unit} says why"
        )
    return record


def _as_process(spec: Spec, path: Path) -> dict[str, Any]:
    """Fork the supervisor, into a session of its own, and return its first record."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            _be_supervisor(path, said.fileno())
        record = _first_record(spec, over=lambda: os.waitpid(child, os.WNOHANG)[0] == child)
        if record is not None:
            return record
        with suppress(ProcessLookupError, ChildProcessError):  # it has ended by itself
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        said.seek(0)
        lines = said.read().splitlines()
        errors = [line.removeprefix(ERROR) for line in lines if line.startswith(ERROR)]
        raise LaunchError(*errors or [f"{spec.node}: the supervisor did not start", *lines])


def _be_supervisor(path: Path, errors: int) -> NoReturn:
    """Be the supervisor in this forked process, apart from the caller's session and files."""
    status = 1
    try:
        os.setsid()
        with open(os.devnull, "r+b") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(nothing.fileno(), 1)
        os.dup2(errors, 2)
        status = main(["run", "--spec", str(path)])
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _unless_ending(spec: Spec) -> dict[str, Any]:
    """Return the run's record; first wait for a supervisor that has recorded the end to exit."""
    until = time.monotonic() + START_TIMEOUT
    record = read_record(spec.workspace, spec.run)
    while record["alive"] and record["state"] in ENDS and time.monotonic() < until:
        time.sleep(0.1)
        record = read_record(spec.workspace, spec.run)
    return record


def _first_record(spec: Spec, over: Callable[[], bool]) -> dict[str, Any] | None:
    """Return the record that the supervisor wrote, or None if `over` came true before one."""
    until = time.monotonic() + START_TIMEOUT
    while time.monotonic() < until:
        ended = over()
        if spec.record.exists():
            return read_record(spec.workspace, spec.run)
        if ended:
            return None
        time.sleep(0.05)
    return None


def _stop(given: argparse.Namespace) -> int:
    """Write the stop file, which the supervisor and the trainer poll; cancel a job that waits."""
    workspace = given.workspace.expanduser()
    record = read_record(workspace, given.run)
    asked = record.pop("alive")
    if asked:
        laid = stop_file(workspace, given.run)
        laid.write_text(STOP_NOW if given.now else STOP)
    elif record.get("job") is not None and record["state"] not in ENDS:
        asked = cancel(workspace, record)
    _show({"ok": True, "asked": asked, "state": record["state"]})
    return 0


def _show(result: dict[str, Any]) -> None:
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
