"""The found machines, the left-out entries and the draft, as text and as JSON. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from hearth.base.text import NOT_KNOWN, plain
from hearth_controller.discover.choice import AddressChoice, nic_text
from hearth_controller.discover.draft import Draft
from hearth_controller.discover.machine import Machine
from hearth_controller.discover.search import LeftOut

_TITLES = ("node", "address", "NIC", "GPU", "system", "login")


def _cells(name: str, address: str, machine: Machine, choice: AddressChoice) -> list[str]:
    """Return the cells of a machine's row."""
    facts = machine.facts
    known = (facts.gpu, facts.system) if facts else ("", "")
    login = "here" if machine.login == "local" else machine.login
    cells = [name, address, nic_text(machine, choice), *known, login]
    return [plain(cell) or NOT_KNOWN for cell in cells]


def found_lines(
    names: Sequence[str], machines: Sequence[Machine], choices: Sequence[AddressChoice], width: int
) -> list[str]:
    """Return a numbered table of the machines that were found."""
    rows = [
        [str(number), *_cells(name, choice.address, machine, choice)]
        for number, (name, machine, choice) in enumerate(
            zip(names, machines, choices, strict=True), start=1
        )
    ]
    return _table(("#", *_TITLES), rows, width)


def draft_lines(draft: Draft, width: int) -> list[str]:
    """Return a table of the nodes, and their remarks."""
    rows = [
        [str(rank), *_cells(node.name, node.address, node.machine, node.choice)]
        for rank, node in enumerate(draft.nodes)
    ]
    remarks = [f"{node.name}: {each}" for node in draft.nodes for each in node.remarks]
    keys = [f"{each.name} {each.machine.keys[0]}" for each in draft.nodes if each.machine.new_key]
    if keys:
        remarks.append(f"host keys new to you, pinned for this inventory: {', '.join(keys)}")
    lines = listed_lines(remarks, width)
    return [*_table(("rank", *_TITLES), rows, width), *([""] if lines else []), *lines]


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return an aligned table; if it is too wide, two below each other, both with the names."""
    wide = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]

    def part(columns: Sequence[int]) -> list[str]:
        return [
            "  ".join(row[each].ljust(wide[each]) for each in columns).rstrip()
            for row in (titles, *rows)
        ]

    whole = part(range(len(titles)))
    if max(map(len, whole)) <= width:
        return whole
    return [*part((0, 1, 2, 3, 6)), "", *part((1, 4, 5))]


def left_out_lines(left_out: Iterable[LeftOut], width: int) -> list[str]:
    """Return the left-out entries by reason."""
    entries: dict[str, list[str]] = {}
    for each in left_out:
        entries.setdefault(each.why, []).append(each.entry)
    return listed_lines([f"{', '.join(names)}: {why}" for why, names in entries.items()], width)


def listed_lines(sentences: Iterable[str], width: int) -> list[str]:
    """Return sentences as list entries that are wrapped to a width."""
    return [
        line
        for sentence in sentences
        for line in textwrap.wrap(
            plain(sentence),
            width,
            initial_indent="- ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def as_json(
    machines: Sequence[Machine], choices: Sequence[AddressChoice], left_out: Iterable[LeftOut]
) -> dict[str, Any]:
    """Return the machines that were found, with their facts, and the left-out entries."""
    return {
        "machines": [
            {
                "source": machine.candidate.source,
                "host": machine.candidate.host,
                "user": machine.route.user,
                "port": machine.route.port,
                "login": machine.login,
                "trouble": machine.trouble,
                "host_keys": [str(key) for key in machine.keys],
                "address": choice.address,
                "nic": choice.nic and choice.nic.name,
                "facts": machine.facts and asdict(machine.facts),
            }
            for machine, choice in zip(machines, choices, strict=True)
        ],
        "left_out": [asdict(each) for each in left_out],
    }
