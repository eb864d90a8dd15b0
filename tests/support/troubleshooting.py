"""The catalogue rendered as a Markdown page: docs/troubleshooting.md."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hearth.diagnose.catalogue import Entry, ErrorSample, sections

_INTRO = """\
# Troubleshooting

When a run fails, `hearth train` names the node where it began, the first error as it was printed,
its cause and a cure. The same from log files at hand, of one node or of several:

```
python -m hearth.diagnose runs/RUN/logs/*.log
```

It ends with status 0 if it found the cause and 1 if it did not. This page is everything it knows,
with real messages, to search for yours. What Hearth reports itself (`hearth: error: …`) says what
to do and is not listed here.

<!-- Made from training/hearth/diagnose/catalogue.yml; do not edit:
     python -m tests.support.troubleshooting > docs/troubleshooting.md -->
"""
_GITHUB = re.compile(r"https://github\.com/(?P<name>[^/]+/[^/]+)/(issues|pull)/(?P<number>\d+)")


def markdown() -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRO
    for heading, entries in sections().items():
        names = ", ".join(f"[{entry.id}](#{entry.id})" for entry in entries)
        yield f"- {heading}: {names}"
    yield ""
    for heading, entries in sections().items():
        yield f"## {heading}\n"
        for entry in entries:
            yield from _entry(entry)


def _entry(entry: Entry) -> Iterator[str]:
    yield f"### {entry.id}\n"
    yield "```text"
    for seen in entry.seen:
        yield seen.text
        if seen.kernel:
            yield f"kernel: {seen.kernel}"
    yield "```\n"
    yield f"{entry.cause}\n"
    yield f"**Cure:** {entry.cure}\n"
    sources = dict.fromkeys(map(_source, entry.seen))
    yield f"<sub>Seen: {', '.join(sources)}</sub>\n"


def _source(seen: ErrorSample) -> str:
    """Return a link to an error text's source: a web page or the test that provokes it."""
    if seen.provoked:
        file, _, test = seen.source.partition("::")
        return f"[{test}](../{file})"
    found = _GITHUB.match(seen.source)
    name = f"{found['name']}#{found['number']}" if found else seen.source.split("/", 3)[-1]
    return f"[{name}]({seen.source})"


if __name__ == "__main__":
    print(markdown(), end="")
