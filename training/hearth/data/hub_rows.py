"""Loads a data set from the Hub, or from the local cache if the Hub does not answer."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from hearth.base.errors import DataError, did_you_mean
from hearth.base.files import sync
from hearth.base.hub import PROBE_SECONDS, first_line, hub_api, is_unreachable, refusal
from hearth.data.locate import HubDataset, shipped_names


def load_hub_rows(data: HubDataset) -> tuple[Any, str]:
    """Return the rows of the `train` split of `data`, and a checksum of their content.

    Raises `DataError` if the data set is unknown or gated, lacks the configuration or split, or
    if the Hub does not answer and the data set is not cached.
    """
    import datasets

    reachable = _probe(data)
    if not reachable:
        # Use the cache at once: datasets would retry the Hub for half a minute.
        datasets.config.HF_HUB_OFFLINE = True
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        rows = datasets.load_dataset(data.id, data.config, split="train")
    except Exception as error:  # datasets passes on errors of many libraries
        raise _load_error(data, error, reachable) from None
    if len(rows) == 0:
        raise DataError(f"{data.name}: its train split has no rows; there is nothing to train on")
    checksum = hashlib.sha256(f"{data.name} {rows._fingerprint}".encode()).hexdigest()
    return rows, checksum


def keep_hub_rows(data: HubDataset, path: Path) -> None:
    """Write the rows of the `train` split of `data` to a parquet file, atomically.

    Raises `DataError` like `load_hub_rows`, and if the file cannot be written.
    """
    rows, _ = load_hub_rows(data)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(str(unfinished))
        sync(unfinished)  # a torn file would be sent to all other nodes
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise DataError(
            f"{path}: the rows of {data.name} cannot be stored here ({error.strerror or error}); "
            "free some space, or make this folder writable for you"
        ) from error


def open_stream(data: HubDataset, revision: str | None) -> tuple[Any, str]:
    """Return the `train` split of `data` as an iterable data set, and the commit that it is of.

    That is `revision`, or else the newest.

    Raises `DataError` if the Hub does not answer, or like `load_hub_rows`.
    """
    import datasets

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        revision = revision or hub_api().dataset_info(data.id, timeout=PROBE_SECONDS).sha
        rows = datasets.load_dataset(
            data.id, data.config, split="train", streaming=True, revision=revision
        )
    except Exception as error:  # datasets passes on errors of many libraries
        if is_unreachable(error):
            raise DataError(
                f"{data.name}: the Hub does not answer, and streaming reads from it while it "
                "trains; connect, or take streaming=off with data that the disk holds"
            ) from error
        raise _load_error(data, error, reachable=True) from None
    return rows, revision


def _probe(data: HubDataset) -> bool:
    """Return whether the Hub answers a request about `data`; raise `DataError` if it refuses."""
    try:
        hub_api().dataset_info(data.id, timeout=PROBE_SECONDS)
    except Exception as error:  # proxy, DNS, TLS, HTTP: each has its own error classes
        if is_unreachable(error):
            return False
        raise _load_error(data, error, reachable=True) from None
    return True


def _load_error(data: HubDataset, error: Exception, reachable: bool) -> DataError:
    """Translate `error` into a `DataError` for the user."""
    if not reachable:
        return DataError(
            f"{data.name}: the Hub does not answer and this data set is not in the local cache; "
            "connect, or give a data file (.jsonl, .txt, .csv, .parquet)"
        )
    similar = did_you_mean(data.id, shipped_names())
    if reason := refusal(error, "data set", f"datasets/{data.id}", similar):
        return DataError(f"{data.name}: {reason}")
    return DataError(
        f"{data.name}: this data set cannot be loaded from the Hub ({first_line(error)}); name a "
        "configuration as name:config; only its train split is used"
    )
