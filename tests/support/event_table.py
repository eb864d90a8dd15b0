"""The events of a node and the ends of a run, for the generated part of docs/lost-nodes.md.

    python -m tests.support.event_table

writes it between the marks in that page.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hearth.supervisor.decisions import transition
from hearth.supervisor.decisions.verdicts import ENDS

PAGE = Path(__file__).parents[2] / "docs" / "lost-nodes.md"
BEGIN = "<!-- events: made from training/hearth/supervisor/decisions; do not edit -->"
END = "<!-- events: end -->"


def events() -> list[str]:
    """Return the rows of the table of events, as the module has them, its head first."""
    return [line for line in (transition.__doc__ or "").splitlines() if line.startswith("|")]


def _lines() -> Iterator[str]:
    yield BEGIN
    yield ""
    yield from events()
    yield ""
    yield "The first of these that holds ends the run, or the node's part in it:"
    yield ""
    for number, rule in enumerate(ENDS, start=1):
        first = (rule.__doc__ or "").splitlines()[0].removesuffix(".")
        yield f"{number}. {first.partition(' of ')[2]}"
    yield ""
    yield END


def written(page: str) -> str:
    """Return the page with its generated part made anew."""
    before, _, rest = page.partition(BEGIN)
    return before + "\n".join(_lines()) + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
