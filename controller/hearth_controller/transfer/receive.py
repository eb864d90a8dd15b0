"""Follow the relay of one node until model and data are there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hearth.base.text import byte_count, duration
from hearth_controller.base.paths import for_shell
from hearth_controller.base.screen import Screen


@dataclass(frozen=True)
class Receiver:
    """The relay of a node, process `pid`; that of the last node in `chain` draws its progress.

    `call` identifies the records of this call; `execute` runs a command on the node.
    """

    node: str
    chain: Sequence[str]
    call: str
    pid: int
    workspace: str
    execute: Callable[[str], str]
    screen: Screen

    def inspect(self) -> dict[str, Any] | None:
        """Show the progress; return the result once the relay has received everything or ended."""
        record, alive = self._record()
        state, many = record.get("state"), len(self.chain)
        draws = self.chain[-1] == self.node
        if state not in ("done", "failed") and alive:
            if draws and record:
                tenth = (record["here"] + record["sent"]) * 10 // max(record["size"], 1)
                whose = f"{self.node}, the last of {many}" if many > 2 else self.node
                self.screen.progress(progress(record, whose), tenth)
            return None
        if draws:
            self.screen.end()
        if state == "done":
            facts = {name: record[name] for name in ("sent", "here", "began", "ended")}
            return {"changed": True, "note": arrived(record), "facts": facts}
        log = f"{self.workspace}/logs/transfer.log"
        unsaid = f"what takes model and data has ended without a word: was it killed? See {log}"
        return {"findings": record.get("findings") or [unsaid], "facts": {}}

    def _record(self) -> tuple[dict[str, Any], bool]:
        """Return the record of this node's relay, and whether its process lives."""
        file = for_shell(f"{self.workspace}/config/transfer.json")
        alive = f"if kill -0 {self.pid} 2>/dev/null; then echo alive; else echo gone; fi"
        output = self.execute(f"{alive}; cat {file} 2>/dev/null || true")
        lives, _, text = output.strip().partition("\n")
        record = json.loads(text) if text.strip() else {}
        return (record if record.get("call") == self.call else {}), lives.strip() == "alive"


def progress(record: Mapping[str, Any], whose: str) -> str:
    """Return a node's progress as one line."""
    if record["state"] == "proving":
        return f"{whose}: everything is there; reading it once more"
    done, size = record["here"] + record["sent"], record["size"]
    if not size:
        return f"{whose}: asks {record['giver'] or 'the others'}"
    speed = record["sent"] / max(time.time() - record["began"], 0.1)
    parts = [f"{whose}: {byte_count(done)} of {byte_count(size)}", f"from {record['giver']}"]
    if record["sent"]:
        parts += [f"{byte_count(speed)}/s", f"{duration((size - done) / speed)} left"]
    return " · ".join(parts)


def arrived(record: Mapping[str, Any]) -> str:
    """Return a node's transfer summary: size, sender, speed, and senders that were skipped."""
    seconds = record["ended"] - record["began"]
    text = (
        f"{byte_count(record['sent'])} from {record['giver']} in {duration(seconds)} "
        f"({byte_count(record['sent'] / max(seconds, 0.1))}/s)"
    )
    if record["here"]:
        text += f"; {byte_count(record['here'])} were here already"
    for lost in record["lost"]:
        text += f"; {lost['name']} was passed over: {lost['why']}"
    return text
