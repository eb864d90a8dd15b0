"""The catalogue of errors as Markdown, for the generated part of docs/troubleshooting.md.

    python -m tests.support.troubleshooting

writes it between the marks in that page.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten

from hearth.diagnose.catalogue import Entry, ErrorSample, sections

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
BEGIN = "<!-- errors: made from training/hearth/diagnose/catalogue.yml; do not edit -->"
END = "<!-- errors: end -->"

_WIDTH = 160
"""Letters of a line of an error that are shown, so that the page can be read."""


def markdown() -> str:
    """Return the part of the page that the catalogue makes, between its marks."""
    return "\n".join([BEGIN, *_lines(), END])


def _lines() -> Iterator[str]:
    for heading, entries in sections().items():
        yield f"## {heading}\n"
        for entry in entries:
            yield from _entry(entry)


def _entry(entry: Entry) -> Iterator[str]:
    yield f"### {entry.id}\n"
    yield "```text"
    yield from shown(entry.seen[0])
    yield "```\n"
    yield f"{entry.cause} **Cure:** {entry.cure}\n"


def shown(seen: ErrorSample) -> list[str]:
    """Return the lines of an error text, long ones shortened."""
    lines = [*seen.text.splitlines(), *([f"kernel: {seen.kernel}"] if seen.kernel else [])]
    return [shorten(line, _WIDTH, placeholder=" …") for line in lines]


def written(page: str) -> str:
    """Return the page with its generated part made anew."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{markdown()}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
