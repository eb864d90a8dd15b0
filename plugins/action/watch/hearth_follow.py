"""Action plugin: follow a run on one node until it ends there.

Reads the node's files with one cheap shell command per poll. Rank 0's node has the metrics, so its
follower shows the progress: one live line on a terminal, else a line now and then. Nothing here can
disturb the run; Ctrl-C stops watching, and training continues.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from hearth.base.text import duration
from hearth.plan.straggler import has_changed, moves, waited_for
from hearth.supervise.cause import ENDS
from hearth_controller.base.paths import for_shell
from hearth_controller.base.screen import Screen
from hearth_controller.runs.listing import local_time

DOCUMENTATION = r"""
module: hearth_follow
short_description: Show the progress of a run and wait for its end on this node
options:
  run:
    description: Name of the run.
    type: str
    required: true
  workspace:
    description: Workspace of the node.
    type: str
    required: true
  interval:
    description: Seconds between two looks.
    type: float
    default: 1
  patience:
    description: Seconds without any answer of the node after which it is given up.
    type: float
    default: 180
"""

RETURN = r"""
state:
  description: How the run ended here - C(finished), C(stopped), C(failed), C(lost) or C(unknown).
  returned: always
  type: str
gone:
  description: Whether the node answers, and its supervisor is gone without a word.
  returned: if so
  type: bool
message:
  description: Why it is not known how the run ended here.
  returned: with C(lost) and C(unknown)
  type: str
cause:
  description: Why, as the supervisor recorded it.
  returned: if there is one
  type: dict
rank:
  description: Rank of this node in the run.
  returned: if the run was started here
  type: int
generation:
  description: Which launch of the run it was.
  returned: if the run was started here
  type: int
launches:
  description: The launches before it that a lost node or a killed rank ended, with their C(cause).
  returned: if the run was started here
  type: list
nodes:
  description: Names of all nodes of the run, in order of rank.
  returned: if the run was started here
  type: list
script:
  description: Name of the person's script that the run is of; empty for one of Hearth's trainer.
  returned: if the run was started here
  type: str
since:
  description: When the run came to this state here (ISO 8601).
  returned: if the run was started here
  type: str
"""

_MARK = "--hearth--"
_TO_THE_SECOND = len("2026-11-20T07:46:11")
_SECONDS_TILL_MENTIONED = 15.0
_LOOKS_FOR_A_UNIT = 30


@dataclass
class Progress:
    """Progress of a run, from the metrics read so far."""

    ranks: list[str] = field(default_factory=list)
    step: int = 0
    steps: int = 0
    loss: float | None = None
    tokens_per_second: float = 0.0
    by_rank: list[float] = field(default_factory=list)
    slow: str = ""
    rows: dict[int, list[int]] = field(default_factory=dict)
    news: list[str] = field(default_factory=list)
    eta: float | None = None
    started: bool = False
    evaluating: bool = True

    def take(self, line: Mapping[str, Any]) -> None:
        """Process one line of `metrics.jsonl`."""
        match line.get("kind"):
            case "start":
                self.started, self.evaluating, self.rows = True, True, {}
                self.ranks = [str(rank.get("node")) for rank in line.get("ranks", [])]
                self.steps = int(line.get("steps", 0))
            case "step":
                self.evaluating = False
                self.step, self.steps = int(line["step"]), int(line.get("steps", self.steps))
                self.loss, self.eta = line.get("loss"), line.get("eta_seconds")
                self.tokens_per_second = float(line.get("tokens_per_second", 0))
                self.by_rank = list(line.get("tokens_per_second_by_rank", []))
                seconds = list(line.get("compute_seconds_by_rank", []))
                known = len(seconds) == len(self.by_rank) == len(self.ranks)
                self.slow = waited_for(seconds, self.by_rank, self.ranks) if known else ""
            case "plan":
                self._take_plan(line)

    def _take_plan(self, line: Mapping[str, Any]) -> None:
        """Record the rows per rank; report a change if a machine has slowed down."""
        now, slowness = list(line.get("rows_of_round", line["rows"])), line.get("slowness", [])
        # An epoch's last step has fewer rows; compare full steps only with full steps.
        before = self.rows.get(sum(now), now)
        self.rows[sum(now)] = now
        if not len(before) == len(now) == len(slowness) == len(self.ranks):
            return  # from a launch on other nodes
        moved = zip(before, now, slowness, strict=True)
        if any(was != rows and has_changed(slow) for was, rows, slow in moved):
            self.news.append(f"the split {moves(before, now, slowness, self.ranks)}")

    @property
    def tenth(self) -> int:
        """Tenths of the steps that are complete."""
        return self.step * 10 // self.steps if self.steps else 0

    def text(self) -> str:
        """Return the progress as one line."""
        if not self.started:
            return "the ranks load the model"
        if self.evaluating:
            return "held-out evaluation before the first step"
        parts = [f"step {self.step}/{self.steps}"]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.3f}")
        parts.append(f"{self.tokens_per_second:.0f} tokens/s{self._shares()}")
        if self.step >= self.steps:
            parts.append("held-out evaluation and saving")
        elif self.eta is not None:
            parts.append(f"{duration(self.eta)} left")
        if self.slow:
            parts.append(f"the others wait for {self.slow}")
        return " · ".join(parts)

    def _shares(self) -> str:
        """Return tokens/s by node, summed over its ranks."""
        if len(self.ranks) != len(self.by_rank) or len(set(self.ranks)) < 2:
            return ""
        nodes: dict[str, float] = {}
        for node, speed in zip(self.ranks, self.by_rank, strict=True):
            nodes[node] = nodes.get(node, 0.0) + speed
        return " (" + ", ".join(f"{node} {speed:.0f}" for node, speed in nodes.items()) + ")"


def state_text(record: Mapping[str, Any] | None, progress: Progress) -> str:
    """Return the line to show: the state before the ranks run, then their progress."""
    if record is None:
        return "the supervisor starts"
    if record.get("state") == "waiting":
        missing = ", ".join(record.get("missing") or [])
        if cause := record.get("cause"):
            lost = f"{cause['node']}: {cause['message'].splitlines()[0]}"
            return f"{lost}; waiting until {missing} is back" if missing else lost
        return f"waiting until {missing} is ready" if missing else "all nodes are ready"
    if script := record.get("script"):
        return f"{script} has been running since {local_time(str(record['since']))}"
    return progress.text()


class ActionModule(ActionBase):
    """Follows one node."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the outcome of the run on this node."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, options = self.validate_argument_spec(
            {
                "run": {"type": "str", "required": True},
                "workspace": {"type": "str", "required": True},
                "interval": {"type": "float", "default": 1},
                "patience": {"type": "float", "default": 180},
            }
        )
        self._node = task_vars["inventory_hostname"]
        self._screen = Screen(self._display)
        self._progress = Progress()
        self._file, self._offset = "", 0
        self._part: dict[str, Any] = {}
        end = self._until_end(options)
        if self._draws:
            self._screen.end()
        return result | self._part | end

    @property
    def _draws(self) -> bool:
        """Whether this node shows the progress, because it has the metrics."""
        return self._part.get("rank") == 0

    def _until_end(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Poll until the run has ended here; return its final state, and why."""
        pid, gone, answered, away = 0, 0, time.monotonic(), False
        while True:
            try:
                record, alive = self._look(options, pid)
            except AnsibleConnectionFailure as error:
                silent = time.monotonic() - answered
                if silent > options["patience"]:
                    why = f"no answer for {duration(silent)}: {str(error).strip()}"
                    return {"state": "lost", "message": why}
                if silent > _SECONDS_TILL_MENTIONED and not away:
                    self._screen.line(f"{self._node} does not answer; still trying")
                    away = True
                time.sleep(options["interval"])
                continue
            if away:
                self._screen.line(f"{self._node} answers again")
            answered, away = time.monotonic(), False
            if record is None:
                why = f"no run '{options['run']}' was started on this node; is its name right?"
                return {"state": "unknown", "message": why}
            wanted = ("rank", "nodes", "generation", "launches", "script", "since")
            self._part = {name: record.get(name) for name in wanted}
            if record["state"] in ENDS:
                return {"state": record["state"], "cause": record.get("cause")}
            # A supervisor that is ending may be observed just before it writes its final state.
            # After a reboot, a supervisor unit starts a little later than logins are possible.
            gone = 0 if alive else gone + 1
            if gone > (_LOOKS_FOR_A_UNIT if record.get("unit") else 2):
                why = "its supervisor is gone without a word: killed, or the machine was restarted"
                return {"state": "lost", "gone": True, "message": why}
            # The first poll does not know yet which node has the metrics, and has not read them.
            if self._draws and pid:
                self._screen.progress(state_text(record, self._progress), self._progress.tenth)
            pid = record["pid"]
            time.sleep(options["interval"])

    def _look(self, options: Mapping[str, Any], pid: int) -> tuple[dict[str, Any] | None, bool]:
        """Return the supervisor's record, and whether process `pid` lives; read new metrics."""
        folder = for_shell(f"{options['workspace']}/results/{options['run']}")
        commands = [
            f"cd {folder} 2>/dev/null && test -f supervisor.json || exit 3",
            f"if kill -0 {pid} 2>/dev/null; then echo alive; else echo gone; fi",
            f"cat supervisor.json; echo {_MARK}",
        ]
        if self._draws:
            commands.append("{ stat -c %i metrics.jsonl || echo none; } 2>/dev/null")
            commands.append(f"tail -c +{self._offset + 1} metrics.jsonl 2>/dev/null || true")
        answer = self._low_level_execute_command("; ".join(commands), sudoable=False)
        if answer["rc"] == 3:
            return None, False
        if answer["rc"] != 0:
            raise AnsibleConnectionFailure(answer["stderr"] or f"status {answer['rc']}")
        head, _, rest = answer["stdout"].partition(f"{_MARK}\n")
        alive, _, text = head.partition("\n")
        record = json.loads(text)
        file, _, metrics = rest.partition("\n")
        self._take(file, metrics, since=record["since"])
        return record, pid == 0 or alive == "alive"

    def _take(self, file: str, metrics: str, since: str) -> None:
        """Process complete lines written since the run began here; an incomplete one waits.

        A resumed run replaces the file by a new one, which begins with the lines it kept.
        """
        if file != self._file:
            anew, self._file, self._offset = self._offset > 0, file, 0
            if anew:
                return
        whole = metrics[: metrics.rfind("\n") + 1]
        self._offset += len(whole.encode())
        for line in map(json.loads, whole.splitlines()):
            if line["time"][:_TO_THE_SECOND] >= since[:_TO_THE_SECOND]:
                self._progress.take(line)
        for news in self._progress.news:
            self._screen.line(news)
        self._progress.news.clear()
