"""The verbs for transferring model and data to the nodes. Each prints one JSON object."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hearth.base.errors import HearthError
from hearth.config import Run, preset_names, read_run
from hearth.config.layout import Layout
from hearth.data.locate import HubDataset, locate
from hearth.transfer.relay import Courier, Task, start

_RECORD = Path("config", "transfer.json")
_LOG = Path("logs", "transfer.log")


def main(arguments: list[str] | None = None) -> int:
    """Run one verb and return the exit status: 0, or 2 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m hearth.transfer", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for name, verb, text in (
        ("mark", _mark, "mark the folder that all nodes are to share"),
        ("fetch", _fetch, "download what no node has"),
        ("offer", _begin, "cut what this node has into pieces and give them"),
        ("take", _begin, "take what this node lacks, and give it on"),
    ):
        sub = verbs.add_parser(name, help=text, description=text)
        sub.add_argument("--run-file", type=Path, required=True, metavar="FILE")
        sub.add_argument("--spec", type=Path, required=True, help="what to do (JSON)")
        sub.set_defaults(verb=verb)
    courier = verbs.add_parser("courier", help="be the process that does so; reads its task")
    courier.set_defaults(verb=None)
    given = parser.parse_args(arguments)
    if given.verb is None:
        return _courier()
    answer: dict[str, Any] = {"facts": {}, "findings": []}
    with redirect_stdout(sys.stderr):
        try:
            run, spec = read_run(given.run_file), json.loads(given.spec.read_text())
            answer |= given.verb(run, Layout.from_environment(), spec)
        except HearthError as error:
            answer["findings"] = error.findings
    print(json.dumps(answer))
    return 2 if answer["findings"] else 0


def _mark(run: Run, layout: Layout, spec: dict[str, Any]) -> dict[str, Any]:
    """Mark the folder `shared`; return whether it was unmarked before."""
    from hearth.transfer.own_copies import mark

    return {"facts": {"changed": mark(Path(spec["shared"]).expanduser())}}


def _fetch(run: Run, layout: Layout, spec: dict[str, Any]) -> dict[str, Any]:
    """Download `keys`: the model, the rows of a data set of the Hub."""
    if "model" in spec["keys"]:
        from hearth.model.fetch import fetch_model

        fetch_model(run.source, layout.models, print, known=preset_names())
    if "data" in spec["keys"]:
        from hearth.data.hub_rows import keep_hub_rows

        data = locate(run.settings.dataset)
        assert isinstance(data, HubDataset)
        keep_hub_rows(data, layout.kept(run.settings.dataset))
    return {"facts": {"changed": True}}


def _begin(run: Run, layout: Layout, spec: dict[str, Any]) -> dict[str, Any]:
    """Start a courier with a task, completed by this node's own paths; return its first report."""
    from hearth.transfer.own_copies import targets_of

    root = layout.results.parent
    targets = {key: str(path) for key, path in targets_of(run, layout).items()}
    task = spec | {"targets": targets, "record": str(root / _RECORD)}
    return start(TypeAdapter(Task).validate_python(task), root / _LOG)


def _courier() -> int:
    """Run the task given on standard input; print the first report to standard output."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # outlive the login that started it

    def ready(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), flush=True)

    return Courier(TypeAdapter(Task).validate_json(sys.stdin.read()), ready).run()


if __name__ == "__main__":
    sys.exit(main())
