"""`hearth init`: find the machines of the home and write an inventory that describes them."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import TypeVar

from hearth.base.errors import HearthError
from hearth_controller.base.paths import as_typed
from hearth_controller.cli import use
from hearth_controller.cli.place import Place
from hearth_controller.discover import answers, search, show
from hearth_controller.discover.choice import (
    chosen,
    names,
    networks,
    ranked,
    suggested,
)
from hearth_controller.discover.connection import pins, routes_to
from hearth_controller.discover.draft import Draft, draft
from hearth_controller.discover.files import example_files, write
from hearth_controller.discover.machine import Candidate, Machine
from hearth_controller.discover.render import rendered

_MODES = """
How does each machine keep its address?
  static  provision sets it on the machine itself, for good. A machine that is not
          reached at it afterwards takes the change back by itself.
  verify  your router keeps it, by a DHCP reservation for each machine. provision
          only checks it."""
_POOL = (
    "Take these addresses out of the range that your router gives to others, so that no guest gets "
    "one while its machine is off."
)
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
        "--mode", choices=("static", "verify"), help="who keeps the addresses: machines or router"
    )
    here = parser.add_mutually_exclusive_group()
    here.add_argument("--here", action="store_true", default=None, help="take this computer too")
    here.add_argument("--not-here", dest="here", action="store_false", help="do not take it")
    parser.add_argument("--no-mdns", action="store_true", help="do not listen for announcements")
    parser.add_argument("--yes", action="store_true", help="ask nothing and take every default")
    parser.add_argument("--force", action="store_true", help="replace FOLDER; a copy is kept")
    parser.add_argument(
        "--json", action="store_true", help="print what was found, and write only with --yes"
    )


def run(given: argparse.Namespace, place: Place) -> int:
    """Run `hearth init` and return the exit status."""
    try:
        return _Init(given, place).run()
    except HearthError as error:
        print("\n".join([*error.findings, "Nothing was written."]), file=sys.stderr)
        return 2
    except EOFError:
        print("\nNo terminal to ask at: add --yes. Nothing was written.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nNothing was written.", file=sys.stderr)
        return 1


class _Init:
    """One call of `hearth init`."""

    def __init__(self, given: argparse.Namespace, place: Place) -> None:
        self.given, self.place = given, place
        self.folder = (place.repository / Path(given.target).expanduser()).resolve()
        self.asked = [answers.machine_in(text) for text in given.machine]
        self.asks = not given.yes and not given.json
        self.width = min(shutil.get_terminal_size().columns, 120)
        self.here = search.this_computer()

    def run(self) -> int:
        """Find the machines, ask, and write the inventory; return the exit status."""
        if self.asks or self.given.yes:
            self.allow()
        self.say("Hearth looks for the machines of your home. It changes none of them.")
        user = self.given.user or self.ask(
            "Your login on them, where ~/.ssh/config names none", getpass.getuser(), str
        )
        candidates, unread = self.candidates(user)
        found = self.find(candidates)
        found.left_out += unread
        if self.given.json:
            machines = ranked([*found.machines, self.here])
            shown = show.as_json(machines, chosen(machines), found.left_out)
            print(json.dumps(shown, indent=1))
            if not self.given.yes:
                return 0
        return self.write(self.draft(self.selected(found, user)))

    def say(self, *lines: str) -> None:
        """Print lines, unless the output is JSON."""
        if not self.given.json:
            print("\n".join(lines), flush=True)

    def ask(self, question: str, default: str, meaning: Callable[[str], _Meaning]) -> _Meaning:
        """Return the meaning of the answer, or of the default after Enter and where none is asked.

        An answer without a meaning (`HearthError`) is asked for again.
        """
        while self.asks:
            answer = input(f"{question} [{default}]: ").strip()
            try:
                return meaning(answer or default)
            except HearthError as error:
                self.say(*(f"  {finding}" for finding in error.findings))
        return meaning(default)

    def allow(self) -> None:
        """Make sure that the folder may be written. Raises `HearthError` if not."""
        if not self.folder.exists() or self.given.force:
            return
        question = f"{as_typed(self.folder)} exists. Replace it, and keep a copy? (y/n)"
        if not self.asks or not self.ask(question, "n", answers.yes_in):
            raise HearthError(
                f"{as_typed(self.folder)} exists; --force replaces it, keeping a copy"
            )

    def find(self, candidates: Sequence[Candidate]) -> search.Found:
        """Try candidates by SSH, showing the progress on a terminal."""
        live = sys.stdout.isatty() and not self.given.json

        def progress(tried: int, count: int) -> None:
            if live:
                print(f"\r  {tried} of {count} tried by SSH ", end="", flush=True)

        found = asyncio.run(search.try_all(candidates, self.here, progress))
        if live:
            print("\r\x1b[K", end="", flush=True)
        return found

    def candidates(self, user: str) -> tuple[list[Candidate], list[search.LeftOut]]:
        """Return the machines to try, and the sources that could not be read."""
        if self.asked:
            return [replace(each, user=each.user or user) for each in self.asked], []
        found, left_out = search.from_ssh(user)
        if not self.given.no_mdns:
            heard, why = search.from_mdns(user)
            found += heard
            left_out += [search.LeftOut("mDNS", why)] if why else []
        return found, left_out

    def listed(self, found: search.Found) -> list[Machine]:
        """Show the machines in the suggested order, with what was left out, and return them."""
        here = [] if self.given.here is False or not self.here.facts.nics else [self.here]
        machines = [*found.machines, *here] if self.asked else ranked([*found.machines, *here])
        if machines:
            table = show.found_lines(names(machines), machines, chosen(machines), self.width)
            self.say("", *table)
        if found.left_out:
            self.say("", "Left out:", *show.left_out_lines(found.left_out, self.width))
        return machines

    def selected(self, found: search.Found, user: str) -> list[Machine]:
        """Return the machines that take part, in order of rank. Raises `HearthError` for none."""
        while True:
            machines = self.listed(found)
            labels = names(machines)
            default = suggested(machines, self.given.here)
            if not default and not self.asks:
                raise HearthError(f"no machine was found; name yours: --machine {answers.MACHINE}")
            picked, added = self.ask(
                "\nWhich take part, in order of rank? Numbers, or NAME=ADDRESS for one that is "
                "missing",
                " ".join(str(index + 1) for index in default) or "none",
                partial(answers.selection_in, names=labels),
            )
            if not added:
                return [machines[index] for index in picked]
            added = [replace(each, user=each.user or user) for each in added]
            more = self.find(added)
            found = search.Found([*found.machines, *more.machines], more.left_out)

    def draft(self, machines: list[Machine]) -> Draft:
        """Ask for network, mode and addresses; return the draft of the inventory."""
        network = self.network(machines)
        mode = self.given.mode
        if not mode:
            if self.asks:
                self.say(_MODES)
            modes = ("static", "verify")
            mode = self.ask("Which", "static", partial(answers.one_of, choices=modes))
        chosen_now = [each.address for each in chosen(machines, network)]
        routes = asyncio.run(routes_to(chosen_now))
        made = draft(machines, mode, network, routes)
        if findings := made.findings():
            raise HearthError(*findings)
        return made

    def network(self, machines: Sequence[Machine]) -> IPv4Network | None:
        """Return the network that training uses, asking if several connect all machines."""
        whole = [str(each) for each, count in networks(machines) if count == len(machines)]
        if len(whole) < 2:
            return None
        self.say("", f"Several networks connect these machines: {', '.join(whole)}.")
        which = partial(answers.one_of, choices=whole)
        return IPv4Network(self.ask("Which one is for training", whole[0], which))

    def write(self, made: Draft) -> int:
        """Write the inventory, check it by playing, offer to remember it; return the status."""
        shown = as_typed(self.folder)
        self.say("", *show.draft_lines(made, self.width), "")
        if not self.ask(f"Write {shown}? (y/n)", "y", answers.yes_in):
            self.say("Nothing was written.")
            return 1
        head = f"Written by `hearth init` on {time.strftime('%Y-%m-%d')}."
        files = rendered(made, example_files(self.place.repository), head)
        if keys := pins({node.name: node.machine for node in made.nodes}):
            files["known_hosts"] = "".join(f"{line}\n" for line in keys)
        try:
            kept = write(self.folder, files)
        except OSError as error:
            raise HearthError(f"{shown} cannot be written: {error.strerror}") from error
        self.say(f"Written: {shown}" + (f" (the one before is {as_typed(kept)})" if kept else ""))
        if reasons := self.misread():
            self.say("The playbooks do not accept it yet:", reasons)
            return 1
        if self.ask("Use it from now on? (y/n)", "y", answers.yes_in):
            use.remember(self.place, self.folder)
            hearth = "hearth"
        else:
            hearth = f"hearth -i {shown}"
        options = f" {made.passwords}" if made.passwords else ""
        self.say(
            "",
            "Next:",
            f"  {hearth} provision{options} --check --diff    shows what would change",
            f"  {hearth} provision{options}",
        )
        return 0

    def misread(self) -> str:
        """Return what the playbooks find wrong with the written inventory, or ''."""
        line = replace(self.place, inventory=str(self.folder)).command("inventory", {})
        done = subprocess.run(
            line,
            cwd=self.place.repository,
            env=self.place.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return (done.stdout + done.stderr).strip() if done.returncode else ""
