"""The command of a person at the node, `hearth-lend`, and the tenant of the node now."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hearth.base.clock import local_time, span_of, time_of, when
from hearth.base.entry import print_findings
from hearth.base.errors import HearthError, LaunchError
from hearth.base.files import read_object
from hearth.lend import choice
from hearth.lend.choice import AUTO, OFF, ON, RETURNS, LendChoice
from hearth.supervisor.cause import ENDS
from hearth.supervisor.record import lock_holder, read_record


@dataclass(frozen=True)
class Tenancy:
    """The run under way on this node, "" for none, and whether it has the machine now.

    `away` is the reason why it has not, and `since` when that was so or not, if it is known.
    `lends` is whether the run heeds the person's word: it was launched with this node's terms.
    """

    run: str = ""
    away: str = ""
    since: datetime | None = None
    lends: bool = True

    @property
    def has_machine(self) -> bool:
        """Whether the run has the machine."""
        return bool(self.run) and not self.away


def tenancy(workspace: Path) -> Tenancy:
    """Return the tenancy of the node with this workspace."""
    holder = lock_holder(workspace)
    if holder is None:
        return Tenancy()
    run = str(holder["run"])
    try:
        record = read_record(workspace, run)
    except (LaunchError, ValueError):  # it has just begun, and has no record yet
        return Tenancy(run)
    if record["state"] in ENDS:
        return Tenancy()
    spec = read_object(workspace / "config" / f"{run}.json") or {}
    since = record.get("since")
    return Tenancy(
        run,
        away=str(record.get("away") or ""),
        since=datetime.fromisoformat(since) if since else None,
        lends=bool(spec.get("lend")),
    )


PATIENCE = 120.0
"""Seconds to wait for a run to leave: a step of a slow node, and the end of its ranks."""

STATUS = "status"
_POLL = 0.2

_DESCRIPTION = """\
Keep this machine for yourself, or lend it to runs.

  off     for you: a run leaves after its step, and the other nodes go on without this one
  on      for runs, whatever lend_when, lend_hours and lend_command in the inventory say
  auto    as the inventory says
  status  who has the machine, and since when (also without any word)"""


def main(arguments: list[str] | None = None) -> int:
    """Set or show the person's word; return 0, or 2 for an error."""
    given = _parser().parse_args(arguments)
    try:
        answer = _act(given, local_time())
    except HearthError as error:
        if given.json:
            print(json.dumps({"findings": error.findings, "facts": {}}))
        return print_findings(error)
    if given.json:
        print(json.dumps({"findings": [], "facts": answer}))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hearth-lend",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("word", nargs="?", choices=(*choice.WORDS, STATUS), default=STATUS)
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--for", dest="span", metavar="SPAN", help="auto again after it, such as 2h")
    end.add_argument("--until", metavar="TIME", help="auto again from then on, such as 07:00")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for a run to leave")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    parser.add_argument("--json", action="store_true", help="print JSON instead, and do not wait")
    parser.add_argument("--workspace", type=Path, default=os.environ.get("HEARTH_WORKSPACE"))
    return parser


def _act(given: argparse.Namespace, now: datetime) -> dict[str, Any]:
    """Do what the command line says; return it as facts for a program."""
    if given.workspace is None or not given.workspace.is_dir():
        raise LaunchError(
            f"--workspace: {given.workspace or 'none given'}: there is no such folder"
        )
    workspace = given.workspace.resolve()
    before = choice.read(workspace)
    after = before
    if given.word == STATUS:
        if given.span or given.until:
            raise LaunchError("--for and --until go with off or on")
    else:
        after = _chosen(given, before, now)
    changed = after != before
    if changed and not given.dry_run:
        try:
            choice.write(workspace, after)
        except OSError as error:
            path = choice.choice_file(workspace)
            raise LaunchError(f"{path} cannot be written: {error.strerror}") from error
    there = tenancy(workspace)
    if not given.json:
        _tell(given, workspace, after, there, now)
    return {
        "changed": changed,
        "word": after.at(now),
        "until": after.until and when(after.until, now),
        "trouble": after.trouble,
        "run": there.run,
        "away": there.away,
        "lends": there.lends,
        "since": there.since and when(there.since, now),
    }


def _chosen(given: argparse.Namespace, before: LendChoice, now: datetime) -> LendChoice:
    """Return the choice that the command line makes: the one before, if it is the same.

    Raises `LaunchError` for an end that is no time, and for one of `auto`, which has none.
    """
    until = None
    if given.span or given.until:
        if given.word == AUTO:
            raise LaunchError("auto has no end: leave out --for and --until")
        option, text = ("--for", given.span) if given.span else ("--until", given.until)
        try:
            until = now + span_of(text) if given.span else time_of(text, now)
        except ValueError as error:
            raise LaunchError(f"{option}: {error}") from error
        until = until.replace(microsecond=0)
    if given.word == AUTO:
        return LendChoice()
    same = before.at(now) == given.word and before.until == until and not before.trouble
    return before if same else LendChoice(given.word, now.replace(microsecond=0), until)


def _tell(
    given: argparse.Namespace, workspace: Path, after: LendChoice, there: Tenancy, now: datetime
) -> None:
    """Print the word that holds now and the tenant; wait for a run that is to leave."""
    print(_of_choice(after, now))
    if after.at(now) == OFF and there.has_machine and there.lends:
        if given.word == OFF and not (given.no_wait or given.dry_run):
            print(f"{there.run} leaves after its step …", flush=True)
            there = _until_left(workspace)
        if there.has_machine:
            print(f"{there.run} has not left yet; `hearth-lend` shows when it has.")
            return
    print(_of_tenant(there, after.at(now), now))


def _until_left(workspace: Path) -> Tenancy:
    """Wait until the run has left this machine or has ended; return the tenancy then."""
    until = time.monotonic() + PATIENCE
    while (there := tenancy(workspace)).has_machine and time.monotonic() < until:
        time.sleep(_POLL)
    return there


def _of_choice(word: LendChoice, now: datetime) -> str:
    """Return the line on the person's word."""
    if word.trouble:
        return f"off: {word.trouble}"
    until = f" until {when(word.until, now)}" if word.until else ""
    match word.at(now):
        case w if w == OFF:
            return f"off{until}: this machine is yours; `hearth-lend auto` lends it again."
        case w if w == ON:
            return f"on{until}: this machine lends, whatever the inventory says."
    return "auto: this machine lends as the inventory says."


def _of_tenant(there: Tenancy, word: str, now: datetime) -> str:
    """Return the line on the run under way, given the person's word that holds now."""
    since = f" since {when(there.since, now)}" if there.since else ""
    if not there.run:
        return "No run is under way here."
    if there.away and word == ON:  # the reason is that of a moment ago
        return f"{there.run} is without it{since}; {RETURNS}."
    if there.away:
        return f"{there.run} is without it{since}: {there.away}."
    stays = (
        ""
        if there.lends
        else (", and keeps it to its end: it was started without lending (`hearth stop` ends it)")
    )
    return f"{there.run} has it{since}{stays}."


if __name__ == "__main__":
    sys.exit(main())
