"""Callback: write the outcome and findings of a play to a file, for the `hearth` command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import constants as C
from ansible.plugins.callback import CallbackBase

if TYPE_CHECKING:  # missing in an older Ansible, which the callback of stdout refuses
    from ansible.executor.task_result import CallbackTaskResult

DOCUMENTATION = r"""
name: hearth_answer
type: aggregate
short_description: The end and the findings of a play, as JSON
description:
  - Writes the file that the environment variable C(HEARTH_ANSWER) names; without it, nothing.
  - A result may hold C(answer), facts for programs, C(verdict), and C(refused), which says that
    the task failed for wrong input, before anything was done.
"""

_OF_INPUT = ("ansible.builtin.assert", "ansible.builtin.validate_argument_spec")
"""Actions that fail for wrong input only."""


class CallbackModule(CallbackBase):
    """Collects the answer of all tasks."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "hearth_answer"

    def __init__(self) -> None:
        super().__init__()
        from hearth_controller.base.answer import VARIABLE, Answer  # after that of stdout

        file = os.environ.pop(VARIABLE, "")  # not for the plays that this one starts
        self.disabled = not file
        self._file, self._answer = Path(file), Answer()
        self._refused: list[bool] = []

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        """Add the result's answer and text."""
        said = result.result.get("say")
        if result.task.action in C._ACTION_DEBUG:
            said = f"  {result.result.get('msg', '')}"
        self._answer.add(result.result, str(said or ""))

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        """Add the messages, and note whether the input was wrong."""
        if ignore_errors:
            return
        for each in result.result.get("results") or [result.result]:
            if each.get("failed", True):
                self._add_error(result, each)
        refused = result.task.action in _OF_INPUT or bool(result.result.get("refused"))
        self._refused.append(refused)

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        """Add the reason; a node that the play can do without is no error."""
        if result.task.ignore_unreachable:
            self._answer.add({"verdict": "degraded"}, "")
        else:
            self._add_error(result, result.result)

    def _add_error(self, result: CallbackTaskResult, failure: dict[str, Any]) -> None:
        from hearth_controller.inventory.unreachable import describe_failure

        of_all = result.task.run_once or failure.get("together")
        node = "" if of_all else result.host.get_name()
        message = describe_failure(failure)
        if "censored" in failure:
            message = "failed; its output is hidden because it may hold secrets"
        self._answer.errors.append({"node": node, "message": message})

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Write the answer."""
        nodes = stats.processed.keys() - {"localhost"}
        if stats.failures or (nodes and nodes <= stats.dark.keys()):
            refused = self._refused and all(self._refused)
            self._answer.add({"verdict": "refused" if refused else "broken"}, "")
        elif stats.dark:
            self._answer.add({"verdict": "degraded"}, "")
        else:  # those of tasks that were rescued
            self._answer.errors.clear()
        self._answer.write(self._file)
