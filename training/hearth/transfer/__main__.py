"""The verbs for transferring model and data to the nodes. Each prints one JSON object."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hearth.base.entry import run_verb
from hearth.config import preset_names, read_run
from hearth.config.layout import Layout
from hearth.data.locate import HubDataset, locate
from hearth.transfer.relay import Relay, RelayTask, start

_RECORD = Path("config", "transfer.json")
_LOG = Path("logs", "transfer.log")


def _mark(_: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Mark the folder `shared`; return whether it was unmarked before."""
    from hearth.transfer.own_copies import mark

    return {"facts": {"changed": mark(Path(spec["shared"]).expanduser())}}


def _fetch(run_file: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Download `keys`: the model, the rows of a data set of the Hub."""
    run, layout = read_run(run_file), Layout.from_environment()
    if "model" in spec["keys"]:
        from hearth.model.fetch import fetch_model

        fetch_model(run.source, layout.models, print, known=preset_names())
    if "data" in spec["keys"]:
        from hearth.data.hub_rows import keep_hub_rows

        data = locate(run.settings.dataset)
        assert isinstance(data, HubDataset)
        keep_hub_rows(data, layout.kept(run.settings.dataset))
    return {"facts": {"changed": True}}


def _begin(run_file: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Start a relay with a task, completed by this node's own paths; return its first report."""
    from hearth.transfer.own_copies import shards_here, targets_of

    run, layout = read_run(run_file), Layout.from_environment()
    root = layout.results.parent
    targets = {key: str(path) for key, path in targets_of(run, layout).items()}
    shards = {name: str(path) for name, path in shards_here(run, layout).items()}
    task = spec | {"targets": targets, "shards": shards, "record": str(root / _RECORD)}
    return start(TypeAdapter(RelayTask).validate_python(task), root / _LOG)


def _relay() -> int:
    """Run the task given on standard input; print the first report to standard output."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # outlive the login that started it

    def ready(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), flush=True)

    return Relay(TypeAdapter(RelayTask).validate_json(sys.stdin.read()), ready).run()


if __name__ == "__main__":
    if sys.argv[1:] == ["relay"]:
        sys.exit(_relay())
    sys.exit(run_verb({"mark": _mark, "fetch": _fetch, "offer": _begin, "take": _begin}))
