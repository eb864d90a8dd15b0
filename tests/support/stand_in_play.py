"""Stands in for ansible-playbook below a live view: each playbook does what a file says.

`stand_in_play.py FOLDER PLAYBOOK name=value …` reads `FOLDER/PLAYBOOK.json`: the `lines` that it
prints, the `events` of followers by node, and its `answer`; with `hold` it stays after the events
until it is interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from hearth_controller.base.answer import VARIABLE as ANSWER
from hearth_controller.base.answer import Answer
from hearth_controller.watch.relay import VARIABLE, EventRelay


def main() -> int:
    folder, playbook, *words = sys.argv[1:]
    given = dict(word.split("=", 1) for word in words)
    with Path(folder, "played").open("a") as played:
        played.write(json.dumps([playbook, given]) + "\n")
    file = Path(folder, f"{playbook}.json")
    plan = json.loads(file.read_text()) if file.exists() else {}
    for line in plan.get("lines", []):
        print(line, flush=True)
    relays = []
    for node, events in plan.get("events", {}).items():
        relays.append(EventRelay(os.environ[VARIABLE], node, plan["run"]))
        for event in events:
            relays[-1]._send(event)
    while plan.get("hold"):
        time.sleep(1)
    answer = Answer(**plan.get("answer", {}))
    answer.write(Path(os.environ[ANSWER]))
    return int(bool(answer.errors))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
