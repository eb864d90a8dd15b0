"""`hearth init`: find the machines of the home and write an inventory that describes them."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import TypeVar

from hearth.base.errors import HearthError
from hearth.base.text import plain
from hearth_controller.base.paths import as_typed
from hearth_controller.base.verdict import EXIT
from hearth_controller.cli import use
from hearth_controller.cli.place import INTERRUPTED, Place
from hearth_controller.discover import answers, search, show
from hearth_controller.discover.choice import chosen, names, networks, ranked, suggested
from hearth_controller.discover.connection import routes_to
from hearth_controller.discover.draft import Draft, draft
from hearth_controller.discover.machine import Machine, SshTarget
from hearth_controller.discover.render import example_files, rendered, write

_MODES = ("static", "verify")
_WHICH = """
Which machines take part, in order of rank? Numbers, or NAME=ADDRESS to add one.
Machines"""
_MODE = """
How does each machine keep its address?
  static  provision sets it on the machine for good. A machine that cannot be
          reached at it afterwards takes it back. Keep it out of the range of
          addresses that the router gives to others.
  verify  the router keeps it, by a DHCP reservation; provision only checks it.
Mode"""
_Meaning = TypeVar("_Meaning")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the words and options of `hearth init`."""
    parser.description = (
        "Find the machines of your home and write an inventory. Tries by SSH, with your keys, the "
        "hosts of ~/.ssh/config and known_hosts and those that announce themselves by mDNS. "
        "Changes no machine."
    )
    parser.add_argument(
        "target",
        nargs="?",
        default="inventory/home",
        metavar="FOLDER",
        help="folder of the checkout to write (default: %(default)s)",
    )
    parser.add_argument(
        "--machine",
        action="append",
        default=[],
        metavar=answers.MACHINE,
        help="take this machine and search for none; repeat it in order of rank",
    )
    parser.add_argument("--user", default="", help="your login where ~/.ssh/config names none")
    parser.add_argument(
        "--mode", choices=_MODES, help="who keeps the addresses: machines or router"
    )
    here = parser.add_mutually_exclusive_group()
    here.add_argument("--here", action="store_true", default=None, help="take this computer too")
    here.add_argument("--not-here", dest="here", action="store_false", help="do not take it")
    parser.add_argument("--no-mdns", action="store_true", help="do not listen for announcements")
    parser.add_argument("--yes", action="store_true", help="ask nothing and take every default")
    parser.add_argument("--force", action="store_true", help="replace FOLDER; a copy is kept")
    parser.add_argument(
        "--json", action="store_true", help="print the machines found, and write only with --yes"
    )


def run(given: argparse.Namespace, place: Place) -> int:
    """Run `hearth init` and return the exit status. Raises `HearthError` for wrong input."""
    call = _Init(given, place)
    try:
        return call.run()
    except EOFError:
        raise HearthError(f"no terminal to ask at; add --yes. {call.state()}") from None
    except KeyboardInterrupt:
        print(f"\n{call.state()}.", file=sys.stderr)
        return INTERRUPTED


class _Init:
    """One call of `hearth init`."""

    def __init__(self, given: argparse.Namespace, place: Place) -> None:
        self.given, self.place = given, place
        self.folder = (place.repository / Path(given.target).expanduser()).resolve()
        self.shown = as_typed(self.folder)
        self.asks = not given.yes and not given.json
        self.width = min(shutil.get_terminal_size().columns, 120)
        self.here = search.this_computer()
        self.user = given.user
        self.is_written = False

    def state(self) -> str:
        """Return whether the inventory is written, in words."""
        return f"{self.shown} is written" if self.is_written else "Nothing was written"

    def run(self) -> int:
        """Find the machines, ask, and write the inventory; return the exit status."""
        asked = [answers.machine_in(text) for text in self.given.machine]
        if self.asks or self.given.yes:
            self.allow()
        self.say("Hearth looks for the machines of your home. It changes none of them.")
        self.user = self.given.user or self.ask(
            "Your login on them, where ~/.ssh/config names none", self.here.route.user, str
        )
        left_out: list[search.LeftOut] = []
        candidates = asked
        if not asked:
            sources = (
                [search.from_ssh] if self.given.no_mdns else [search.from_ssh, search.from_mdns]
            )
            for more, unread in (source() for source in sources):
                candidates += more
                left_out += unread
        found = self.tried(candidates)
        found.left_out += left_out
        if self.given.here is not False and self.here.facts.nics:
            found.machines.append(self.here)
        if not asked:
            found.machines = ranked(found.machines)
        if self.given.json:
            shown = show.as_json(found.machines, chosen(found.machines), found.left_out)
            print(json.dumps(shown, indent=1))
            if not self.given.yes:
                return EXIT["good"]
        return self.written(self.draft(self.selected(found)))

    def say(self, *lines: str) -> None:
        """Print lines, unless the output is JSON."""
        if not self.given.json:
            print("\n".join(lines), flush=True)

    def ask(self, question: str, default: str, meaning: Callable[[str], _Meaning]) -> _Meaning:
        """Return the meaning of the answer, or of the default after Enter and where none is asked.

        An answer without a meaning (`HearthError`) is asked for again. Only the last line of the
        question stands before the answer.
        """
        *above, prompt = question.split("\n")
        if self.asks and above:
            self.say(*above)
        while self.asks:
            answer = input(f"{prompt} [{default}]: " if default else f"{prompt}: ").strip()
            try:
                return meaning(answer or default)
            except HearthError as error:
                self.say(*(f"  {finding}" for finding in error.findings))
        return meaning(default)

    def allow(self) -> None:
        """Make sure that the folder may be written. Raises `HearthError` if not."""
        if not self.folder.exists() or self.given.force:
            return
        question = f"{self.shown} exists. Replace it, and keep a copy? (y/n)"
        if not self.ask(question, "n", answers.yes_in):
            raise HearthError(f"{self.shown} exists; --force replaces it and keeps a copy")

    def tried(self, candidates: Sequence[SshTarget]) -> search.SearchResult:
        """Try candidates by SSH, showing the progress on a terminal."""
        live = sys.stdout.isatty() and not self.given.json

        def progress(tried: int, count: int) -> None:
            if live:
                print(f"\r  {tried} of {count} tried by SSH ", end="", flush=True)

        found = asyncio.run(search.try_all(candidates, self.user, self.here, progress))
        if live:
            print("\r\x1b[K", end="", flush=True)
        return found

    def selected(self, found: search.SearchResult) -> list[Machine]:
        """Return the machines that take part, in order of rank. Raises `HearthError` for none."""
        while True:
            labels = names(found.machines)
            table = show.found_lines(labels, found.machines, chosen(found.machines), self.width)
            self.say("", *table)
            if found.left_out:
                self.say("", "Left out:", *show.left_out_lines(found.left_out, self.width))
            default = [str(index + 1) for index in suggested(found.machines, bool(self.given.here))]
            picked, added = self.ask(
                _WHICH, " ".join(default), partial(answers.selection_in, names=labels)
            )
            if not added:
                return [found.machines[index] for index in picked]
            found = found.joined(self.tried(added))

    def draft(self, machines: list[Machine]) -> Draft:
        """Ask for network and mode; return the draft of the inventory."""
        network = self.network(machines)
        mode = self.given.mode or self.ask(_MODE, "static", partial(answers.one_of, choices=_MODES))
        addresses = [each.address for each in chosen(machines, network)]
        made = draft(machines, mode, network, asyncio.run(routes_to(addresses)))
        if findings := made.findings():
            raise HearthError(*findings)
        return made

    def network(self, machines: Sequence[Machine]) -> IPv4Network | None:
        """Return the network for training, asking if several connect all machines."""
        whole = [str(each) for each, on in networks(machines).items() if on == len(machines)]
        if len(whole) < 2:
            return None
        question = f"\nThese networks connect all machines: {', '.join(whole)}\nFor training"
        return IPv4Network(self.ask(question, whole[0], partial(answers.one_of, choices=whole)))

    def written(self, made: Draft) -> int:
        """Write the inventory, check it by playing, offer to remember it; return the status."""
        self.say("", *show.draft_lines(made, self.width))
        if not self.ask(f"\nWrite {self.shown}? (y/n)", "y", answers.yes_in):
            self.say(f"{self.state()}.")
            return EXIT["degraded"]
        head = f"Written by `hearth init` on {time.strftime('%Y-%m-%d')}."
        try:
            kept = write(self.folder, rendered(made, example_files(self.place.repository), head))
        except OSError as error:
            raise HearthError(f"{self.shown} cannot be written: {error.strerror}") from error
        self.is_written = True
        before = f"; the one before is {as_typed(kept)}" if kept else ""
        self.say("", f"{self.state()}{before}.")
        checked = replace(self.place, inventory=str(self.folder)).ask("inventory", {})
        if checked.code != EXIT["good"]:
            self.say("The playbooks do not accept it yet:", plain(checked.output).strip())
            return EXIT["degraded"]
        with_it = f"hearth -i {self.shown}"
        if self.ask("Use it from now on? (y/n)", "y", answers.yes_in):
            use.remember(self.place, self.folder)
            with_it = "hearth"
        provision = " ".join(filter(None, [with_it, "provision", made.passwords]))
        self.say("", "Next:", f"  {provision} --check --diff", f"  {provision}")
        return EXIT["good"]
