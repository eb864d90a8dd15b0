"""A first check of a run's own data files, before anything is loaded or sent to a node.

Their records are read without the model's tokenizer. The nodes read everything once more.
"""

from __future__ import annotations

import time
from pathlib import Path

from hearth.base.errors import DataError
from hearth.config import Run
from hearth.data.documents import examples
from hearth.data.findings import Findings
from hearth.data.formats import open_records
from hearth.data.locate import LocalFile, LocalFiles

_SECONDS = 2.0
_LARGEST = 256 << 20
"""Bytes of a data set up to which it is read here."""


def check_records(run: Run) -> None:
    """Read the records of all data files of `run` that are on this computer, for some seconds.

    Raises `DataError` with the problems found in all of them.
    """
    settings, findings = run.settings, list[str]()
    until = time.monotonic() + _SECONDS
    for name in settings.data_sets:
        data = _files(run, name)
        if data is None:
            continue
        try:
            records = open_records(data, settings.columns, len(settings.data_sets) > 1)
            found = Findings(records.name, records.files)
            for _ in examples(records, found):
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
