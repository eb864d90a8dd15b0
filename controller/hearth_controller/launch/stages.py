"""Stages of a launch: the calls of each node in turn, and a journal that plays them in a play.

A launch is a generator that yields a stage and gets the answers of the nodes. Ansible runs each
task in processes of their own, so that no generator outlives a task: each task plays the launch
again, from the answers that the journal has kept, up to its own stage.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hearth.base.errors import HearthError
from hearth.base.files import alone, write_whole

LAST = "done"
"""Name of the last stage: any other that is still to come has been missed."""

Answers = Mapping[str, Sequence[Mapping[str, Any]]]
"""By node the results of its calls in a stage; a node that has left the play has failed."""


@dataclass(frozen=True)
class NodeCall:
    """A module to run on a node, with its `arguments`.

    Attributes:
        secrets: arguments that are secrets, by the name of the secret. A name may be that of a
            variable in the argument `secrets`.
        follow: for a relay that the module has started: the chain of nodes, and the id of the call.
    """

    module: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    follow: Mapping[str, Any] = field(default_factory=dict)


def program(command: str, spec: Mapping[str, Any], run: str = "", **hidden: str) -> NodeCall:
    """Return the call that runs a program of Hearth, such as `hearth.node talk`.

    `run` is the text of a run file, `hidden` are the options `secret` and `hub_token` of the
    module, by the name of the secret.
    """
    arguments = {"command": command.split(), "spec": dict(spec), "run_file": run}
    return NodeCall("hearth_command", arguments, hidden)


@dataclass(frozen=True)
class LaunchStage:
    """A stage of a launch, which the playbook names.

    Attributes:
        calls: of each node, one after the other until one finds something.
        result: facts for the playbook.
        say: text to show.
        local: something to do on the controller before the calls.
    """

    name: str
    calls: Mapping[str, Sequence[NodeCall]] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    say: str = ""
    local: Callable[[], Any] | None = None


T = TypeVar("T")
Played = Generator[LaunchStage, Answers, T]
"""A part of a launch: it plays stages, and returns its value."""

Stages = Played[None]


@dataclass(frozen=True)
class StageTask:
    """The part of a task in a launch: its calls by node, whether it is skipped, or an error."""

    calls: Mapping[str, list[NodeCall]] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    skipped: bool = False
    error: str = ""


class StageJournal:
    """The answers of a launch, in a private folder of the controller that ends with the play."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        with alone(folder):
            self.key = self._read("key") or self._write("key", secrets.token_hex(24))

    def step(self, task: str, stage: str, launch: Callable[[], Stages]) -> tuple[StageTask, bool]:
        """Return the step of a task (an id) for the stage of this name, and whether it is new.

        It is skipped where the launch has no such stage now.
        """
        with alone(self._folder):
            if known := self._read(f"{task}.step"):
                calls = {
                    name: [NodeCall(**each) for each in of] for name, of in known["calls"].items()
                }
                return StageTask(calls, known["result"], known["skipped"], known["error"]), False
            step = self._next(stage, launch)
            self._write(f"{task}.step", asdict(step))
            if not step.skipped:
                self._write("tasks", [*self._tasks, task])
            return step, True

    def _next(self, wanted: str, launch: Callable[[], Stages]) -> StageTask:
        stages = launch()
        try:
            stage = next(stages)
            for task in self._tasks:
                stage = stages.send(self._answers(task))
            if stage.name != wanted:
                missed = f"the playbook has no task for the stage {stage.name!r}"
                return StageTask(error=missed) if wanted == LAST else StageTask(skipped=True)
            if stage.local:
                stage.local()
        except StopIteration:
            return StageTask(skipped=True)
        except HearthError as error:
            return StageTask(error="\n".join(error.findings))
        except OSError as error:
            return StageTask(error=f"{error.filename} cannot be written: {error.strerror}")
        said = {"say": stage.say} if stage.say else {}
        return StageTask(
            {name: list(of) for name, of in stage.calls.items()}, {**stage.result, **said}
        )

    def record(self, task: str, node: str, results: Sequence[Mapping[str, Any]]) -> None:
        """Keep the results of a node's calls."""
        self._write(f"{task}.{node}", results)

    @property
    def _tasks(self) -> list[str]:
        return self._read("tasks") or []

    def _answers(self, task: str) -> Answers:
        calls = self._read(f"{task}.step")["calls"]
        gone = [{"failed": True, "msg": "failed, see above", "gone": True}]
        return {name: self._read(f"{task}.{name}") or gone for name in calls}

    def _read(self, name: str) -> Any:
        file = self._folder / name
        return json.loads(file.read_text()) if file.exists() else None

    def _write(self, name: str, content: Any) -> Any:
        write_whole(self._folder / name, json.dumps(content, default=str))
        return content
