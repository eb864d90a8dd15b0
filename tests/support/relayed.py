"""Events of followers, and a checkout whose playbooks are stand-ins that send them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.metric_lines import written
from support.repository import ROOT

BEGAN = "2026-11-22T03:00:00Z"


def state(node: str, nodes: Sequence[str], **changes: Any) -> dict[str, Any]:
    """Return the event of a node whose supervisor's record is a running one, with changes."""
    record = {"state": "running", "node": node, "nodes": list(nodes), "rank": nodes.index(node)}
    record |= {"generation": 0, "began": BEGAN, "since": BEGAN, "cause": None, "launches": []}
    return {"change": {"record": record | changes, "alive": True}}


def lines(*records: dict[str, Any], anew: bool = False) -> dict[str, Any]:
    """Return the event of these lines, which were added to the metrics of a node."""
    change = {"place": [1, 0], "anew": anew, "behind": False}
    return {"change": {"metrics": change | {"text": written(*records)}}}


class StandInCheckout:
    """A checkout whose playbooks do what files in `folder` say (`support.stand_in_play`)."""

    repository = ROOT

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def plan(self, playbook: str, **plan: Any) -> None:
        """Say what a playbook does."""
        (self.folder / f"{playbook}.json").write_text(json.dumps(plan))

    @property
    def played(self) -> list[tuple[str, dict[str, str]]]:
        """The playbooks that were played so far, each with its words."""
        file = self.folder / "played"
        texts = file.read_text().splitlines() if file.exists() else []
        return [tuple(json.loads(text)) for text in texts]

    def command(self, playbook: str, words: Mapping[str, str]) -> list[str]:
        stand_in = [str(ROOT / "tests/support/stand_in_play.py"), str(self.folder), playbook]
        return [Path(sys.executable).name, *stand_in, *(f"{k}={v}" for k, v in words.items())]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}
