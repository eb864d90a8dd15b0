"""The answer of a play, for the `hearth` command and for programs.

The callback plugin writes it when the play ends. A task contributes by two keys of its result:
`answer`, facts for programs, and `verdict`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hearth.base.files import write_whole
from hearth_controller.base.verdict import Verdict, worst

VARIABLE = "HEARTH_ANSWER"
"""Environment variable of ansible-playbook with the file that gets the answer."""


@dataclass
class Answer:
    """The findings of a play, and how it ended.

    Attributes:
        ended: how it ended, apart from a verdict in the facts.
        facts: what its tasks returned as `answer`, for programs.
        text: the same as its tasks showed it, for people.
        errors: `node` ('' for all) and `message` of failed tasks and unreachable nodes.
    """

    ended: Verdict = "good"
    facts: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    errors: list[dict[str, str]] = field(default_factory=list)

    def add(self, result: Mapping[str, Any], text: str) -> None:
        """Add a task's result and the text that it shows.

        Facts come with the text of them, which replaces earlier text. Those with a verdict are all
        that there is, and the newer ones count; of others a mapping, such as one by node, grows.
        """
        if "verdict" in result.get("answer", {}):
            self.facts, self.text = dict(result["answer"]), text
        elif "answer" in result:
            for name, fact in result["answer"].items():
                before = self.facts.get(name)
                both = isinstance(before, dict) and isinstance(fact, dict)
                self.facts[name] = before | fact if both else fact
            self.text = text
        elif text:
            self.text = f"{self.text}\n{text}" if self.text else text
        self.ended = worst([self.ended, result.get("verdict", "good")])

    @property
    def verdict(self) -> Verdict:
        """The worse of the play's end and its findings."""
        return worst([self.ended, self.facts.get("verdict", "good")])

    def write(self, file: Path) -> None:
        """Write the answer to a file."""
        write_whole(file, json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Answer | None:
        """Read an answer from a file, or return None if there is none."""
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def for_programs(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        errors = {"errors": self.errors} if self.errors else {}
        return {**self.facts, "verdict": self.verdict, **errors}
