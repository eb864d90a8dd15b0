"""The data of a run before it trains: a quick check of its files, and a preview as trained.

For the preview the model's tokenizer is fetched, its weights are not.
"""

from __future__ import annotations

import shutil
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hearth.base.errors import DataError
from hearth.config import Run, in_parallel
from hearth.config.layout import Layout
from hearth.data.locate import LocalFile, LocalFiles
from hearth.data.shown import Shown, lines_of

_SECONDS = 2.0
_LARGEST = 256 << 20
"""Bytes of a data set up to which it is read here."""


@dataclass(frozen=True)
class Preview:
    """The first examples of a run as they are trained, and a table of its data: name and value."""

    examples: tuple[Shown, ...]
    table: tuple[tuple[str, str], ...]


def for_preview(run: Run) -> Run:
    """Return `run` reduced to its data: no weights, and it fits any computer."""
    settings = run.settings.model_copy(update={"fit": "warn"})
    run = replace(run, settings=settings, source=replace(run.source, weights=False))
    return in_parallel(run, "ddp")


def preview(run: Run, layout: Layout, examples: int, say: Callable[[str], None]) -> Preview:
    """Read the data of `run`, one of `for_preview`, and return a look at them.

    Raises `HearthError` with all problems found.
    """
    # Imported late: with torch.
    from hearth.data.shown import first_examples
    from hearth.data.template import ensure_chat_template
    from hearth.model.code import may_run
    from hearth.model.compatibility import tokenizer_in
    from hearth.node.prepare import prepare

    prepared = prepare(run, layout, say)
    folder = prepared.model.path
    tokenizer = tokenizer_in(folder, may_run(run.settings.trust_remote_code, folder))
    ensure_chat_template(tokenizer)
    rows = prepared.data.sample or prepared.data.train
    report = prepared.data.report
    reports = getattr(report, "parts", None) or [report]
    table = [line for each in reports for line in _rows_of(each, named=len(reports) > 1)]
    steps = [tuple(line.split(": ", 1)) for line in prepared.batch]
    return Preview(tuple(first_examples(tokenizer, rows, examples)), (*table, *steps))


def _rows_of(report: Any, named: bool) -> list[tuple[str, str]]:
    """Return the lines of the table about one data set, with its name if it is one of several."""
    found = [("data", report.name)] if named else []
    noun = getattr(report, "noun", "example")
    counts = {"examples": f"{noun}s", "held_out_examples": "held out", "rows": "", "tokens": ""}
    for name, title in counts.items():
        if (count := getattr(report, name, None)) is not None:
            found.append((title or name, str(count)))
    if noun == "answer":  # each of which has a label
        found.append(("to prefer", f"{report.preferred} of {report.examples} answers"))
    share = report.label_tokens / max(1, report.tokens)
    found.append(("learned", f"{report.label_tokens} tokens, {share:.1%}"))
    if longest := getattr(report, "longest", None):
        found.append(("longest", f"{longest} tokens"))
    for remark in getattr(report, "notes", ()):
        found.append(tuple(remark.rsplit(": ", 1)))
    if unused := getattr(report, "unused", ()):
        found.append(("not used", ", ".join(unused)))
    return found


def lines(found: Preview, colour: bool, width: int | None = None) -> list[str]:
    """Return a preview as lines for a terminal of that `width`, by default this one's."""
    width = width or shutil.get_terminal_size().columns
    text: list[str] = []
    number = 0
    for example in found.examples:
        number += example.side != "rejected"
        text += [*lines_of(example, number, colour, width), ""]
    judged = any(example.side for example in found.examples)
    learned = "▌ is made likelier or less likely" if judged else "▌ is learned"
    legend = f"{learned}, the rest is read; · stands between tokens, ⏎ is a line end"
    text += [*textwrap.wrap(legend, width), ""]
    wide = max((len(name) for name, _ in found.table if len(name) <= 20), default=0)
    for name, value in found.table:
        indent = " " * (wide + 4)
        start = f"  {name:<{wide}}  " if len(name) <= wide else f"  {name}: "
        row = f"{start}{value}"
        text += textwrap.wrap(row, width, subsequent_indent=indent, break_on_hyphens=False)
    return text


def of_answer(facts: Mapping[str, Any]) -> Preview:
    """Return the preview in the facts that a node answered."""
    return TypeAdapter(Preview).validate_python(facts)


def check_records(run: Run) -> None:
    """Read the records of all data files of `run` that are on this computer, for some seconds.

    Raises `DataError` with the problems found in all of them.
    """
    # Imported late: with NumPy.
    from hearth.data.documents import example_groups
    from hearth.data.findings import Findings
    from hearth.data.formats import open_records

    settings, findings = run.settings, list[str]()
    until = time.monotonic() + _SECONDS
    for name in settings.data_sets:
        data = _files(run, name)
        if data is None:
            continue
        try:
            records = open_records(data, settings.columns, len(settings.data_sets) > 1)
            found = Findings(records.name, records.files)
            for _ in example_groups(records, found, settings.objective):
                if time.monotonic() > until:
                    break
            found.raise_any()
        except DataError as error:
            findings += error.findings
    if findings:
        raise DataError(*findings)


def _files(run: Run, name: str) -> LocalFile | LocalFiles | None:
    """Return the files of a data set; None if it has none here, or too much to read now."""
    if shards := run.files_of(name):
        paths = [Path(shard.path) for shard in shards]
        data = LocalFiles(tuple(LocalFile(path, str(path)) for path in paths), name)
    elif run.data_checksums.get(name):
        paths, data = [Path(name)], LocalFile(Path(name), name)
    else:
        return None
    here = all(path.is_file() for path in paths)
    return data if here and sum(path.stat().st_size for path in paths) <= _LARGEST else None
