"""Action plugin: show the runs recorded on the nodes.

The tables are those of `hearth_controller.runs`; this plugin only connects it to Ansible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.base.errors import LaunchError
from hearth_controller.base.options import argument_spec
from hearth_controller.base.screen import TABLE_WIDTH
from hearth_controller.runs.digests import damage, digests_of, observed_runs, readable
from hearth_controller.runs.listing import (
    compare,
    listing,
    new_position,
    queue_table,
    removal,
    removal_objection,
)
from hearth_controller.runs.observed import ObservedRun, pick
from hearth_controller.runs.pages import holders, nodes_with_curves
from hearth_controller.runs.status import entry_of

DOCUMENTATION = r"""
module: hearth_runs_show
short_description: Show the runs of all nodes, two of them side by side, or what one leaves
description:
  - Works on the controller, from what M(hearth_runs) has left as C(runs_look) on the nodes.
    Meant to run once.
options:
  verb:
    description:
      - V(list) returns a table of all runs.
      - V(compare) returns two of them, and the settings that differ.
      - V(removal) returns what one of them has left on each node; fails if it must not be removed.
      - V(pick) returns the one of O(names), or the newest.
      - V(pick_alive) likewise, of those under way.
      - V(move) returns the position that moves the one of O(names) to O(place) in the queue.
    type: str
    choices: [list, compare, removal, pick, pick_alive, move]
    required: true
  nodes:
    description: Names of the nodes, in order of rank.
    type: list
    elements: str
    required: true
  names:
    description: Names of the runs; two for V(compare), one for V(removal).
    type: list
    elements: str
    default: []
  place:
    description: The wanted place in the queue, 1 for the first; for V(move).
    type: str
    default: ""
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the text (`say`), or fail with the reason.

        All verbs but `list` and `compare` return the run's `name`, its `nodes` in order of rank,
        those with `curves` (newest first), again its nodes, the best `holders` of its model first,
        whether its stop was requested (`stopping`), the name of the `script`, if any, why it
        waits in a queue (`queued`), if it does, and whether that is Slurm's (`in_slurm`). `move`
        returns the `position`, and the run's `nodes`.
        """
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        known = digests_of(given["nodes"], task_vars["hostvars"])
        silent = [node for node, digests in known.items() if digests is None]
        damaged = damage(known)
        if known.keys() == set(silent):
            return result | {"failed": True, "msg": "no node has answered: are they on?"}
        try:
            runs = observed_runs(known)
            if given["verb"] == "move":
                (name,) = given["names"]
                position = new_position(runs, name, given["place"])
                nodes = list(pick(runs, name).parts)
                return result | {"position": position, "nodes": nodes}
            answer = self._answer(given["verb"], runs, given["names"], silent, damaged)
            if "name" in answer:
                sound = {node: readable(digests or ()) for node, digests in known.items()}
                curves = nodes_with_curves(answer["name"], sound)
                looks = {node: task_vars["hostvars"][node].get("runs_look", {}) for node in known}
                whole = {node: list(look.get("whole") or ()) for node, look in looks.items()}
                found = holders(pick(runs, answer["name"]), curves, whole)
                answer |= {"curves": curves, "holders": found}
            return result | answer
        except LaunchError as error:
            told = "\n".join([str(error), *damaged])
            return result | {"failed": True, "refused": True, "msg": told}

    def _answer(
        self,
        verb: str,
        runs: Sequence[ObservedRun],
        names: Sequence[str],
        silent: Sequence[str],
        damaged: Sequence[str],
    ) -> dict[str, Any]:
        if verb == "list":
            notes = [*([f"not answered: {', '.join(silent)}"] if silent else []), *damaged]
            queue = queue_table(runs)
            parts = (listing(runs, TABLE_WIDTH), queue, notes)
            lines = [line for part in parts if part for line in ("", *part)][1:]
            return _said(lines, {"runs": [entry_of(run) for run in runs]})
        if verb == "compare":
            if len(names) != 2:
                raise LaunchError(
                    f"-e compare: two runs are wanted, as in compare=A,B, not {','.join(names)!r}"
                )
            both = [pick(runs, name) for name in names]
            facts = [entry_of(run) | {"settings": run.settings} for run in both]
            return _said(compare(*both), {"runs": facts})
        run = pick(runs, names[0] if names else "", under_way=verb == "pick_alive")
        found = {
            "name": run.name,
            "nodes": list(run.parts),
            "stopping": run.stopping,
            "script": run.program or "",
            "queued": (run.why or "") if run.state == "queued" else "",
            "in_slurm": bool(run.job),
            "answer": {"run": run.name},
        }
        if verb != "removal":
            return found
        if reason := removal_objection(run, silent):
            raise LaunchError(reason)
        return found | _said(removal(run), {"run": run.name, "files": run.files})


def _said(lines: Sequence[str], facts: dict[str, Any]) -> dict[str, Any]:
    return {"say": "\n".join(f"  {line}".rstrip() for line in lines), "answer": facts}
