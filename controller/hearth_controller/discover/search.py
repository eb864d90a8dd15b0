"""Search the home for machines: collect candidates, leave out strangers, try the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hearth.base.nics import is_own
from hearth.base.nvidia import NVIDIA_SMI
from hearth_controller.discover import connection, probe, sources
from hearth_controller.discover.machine import MDNS, Machine, Route, SshTarget, facts_of
from hearth_controller.discover.sources import config_hosts, known_hosts

HERE = "this computer"
_AT_ONCE = 16


@dataclass(frozen=True)
class LeftOut:
    """An entry that is no machine of the home, or cannot be one now, and the reason."""

    entry: str
    why: str


@dataclass
class SearchResult:
    """The machines that were found, and the entries that were left out."""

    machines: list[Machine] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def joined(self, later: SearchResult) -> SearchResult:
        """Return the result with that of a later search, whose machines replace these."""
        kept = [
            each for each in self.machines if not any(same(each, other) for other in later.machines)
        ]
        return SearchResult([*kept, *later.machines], later.left_out)


def this_computer() -> Machine:
    """Return the computer that runs this."""
    facts = facts_of(probe.facts(NVIDIA_SMI))
    candidate = SshTarget("localhost", HERE, facts.hostname)
    return Machine(candidate, Route("localhost", "", facts.user, 0), "local", facts)


def from_ssh() -> tuple[list[SshTarget], list[LeftOut]]:
    """Return the machines in the user's SSH files, and the entries without a name."""
    folder = Path.home() / ".ssh"
    found = [SshTarget(host, "~/.ssh/config", host) for host in config_hosts(folder / "config")]
    try:
        text = (folder / "known_hosts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    known = known_hosts(text)
    taken = {each.host for each in found}
    found += [
        SshTarget(host, "~/.ssh/known_hosts", port=port)
        for host, port in known.names
        if host not in taken
    ]
    entries = f"{known.hashed} hashed {'entry' if known.hashed == 1 else 'entries'}"
    why = "~/.ssh/known_hosts hides their names; give them by --machine"
    return found, [LeftOut(entries, why)] if known.hashed else []


def from_mdns() -> tuple[list[SshTarget], list[LeftOut]]:
    """Return the machines that announce themselves, or why there can be none."""
    heard, why = sources.listen()
    found = [SshTarget(each.address, MDNS, each.name, port=each.port) for each in heard]
    return found, [LeftOut(MDNS, why)] if why else []


async def try_all(
    candidates: Sequence[SshTarget],
    user: str,
    here: Machine,
    progress: Callable[[int, int], None],
) -> SearchResult:
    """Try all candidates at once; `progress` gets the number of those tried and of all.

    `user` logs in where neither the candidate nor ssh's configuration names a login. Of several
    candidates that are one machine the first counts; `here` is never another machine.
    """
    if not connection.has_ssh():
        why = "ssh is missing on this computer: sudo apt install openssh-client"
        return SearchResult(left_out=[LeftOut(each.host, why) for each in candidates])
    found, gate = SearchResult(), asyncio.Semaphore(_AT_ONCE)

    async def with_route(candidate: SshTarget) -> tuple[SshTarget, Route | None]:
        async with gate:
            route = await connection.route_of(candidate)
        if route and not candidate.user and route.user == here.route.user != user:
            return replace(candidate, user=user), replace(route, user=user)
        return candidate, route

    to_try: dict[tuple[str, int], tuple[SshTarget, Route]] = {}
    for candidate, route in await asyncio.gather(*map(with_route, candidates)):
        if why := stranger(candidate, route):
            found.left_out.append(LeftOut(candidate.host, why))
        elif route and (candidate.asked or not is_own(route.address)):
            place = candidate.host if route.proxied else route.address
            to_try.setdefault((place, route.port), (candidate, route))
    tried = 0

    async def look_at(candidate: SshTarget, route: Route) -> Machine:
        nonlocal tried
        async with gate:
            if why := await connection.silence(route):
                machine = Machine(candidate, route, "silent", trouble=why)
            else:
                machine = await connection.attempt(candidate, route)
        tried += 1
        progress(tried, len(to_try))
        return machine

    for machine in await asyncio.gather(*(look_at(*each) for each in to_try.values())):
        candidate = machine.candidate
        if same(machine, here):
            if candidate.asked:
                found.left_out.append(LeftOut(candidate.host, f"is {HERE}; --here includes it"))
        elif machine.login == "silent" and not candidate.asked:
            found.left_out.append(LeftOut(candidate.host, machine.trouble))
        elif not any(same(machine, other) for other in found.machines):
            found.machines.append(machine)
    return found


def stranger(candidate: SshTarget, route: Route | None) -> str:
    """Return why a candidate is not tried, or ''."""
    if route is None:
        return "ssh accepts no such name"
    if not route.address:
        return "no address known"
    if candidate.asked:
        return ""
    if connection.is_public(route.address):
        return "outside the home's network"
    return "a server of git" if route.user == "git" else ""


def same(one: Machine, other: Machine) -> bool:
    """Return whether two are one machine: they share a NIC, or were reached at the same place."""
    if one.facts and other.facts:
        return bool(one.facts.macs & other.facts.macs)
    places = [(each.route.address, each.route.port) for each in (one, other)]
    return places[0] == places[1] and bool(one.route.address)
