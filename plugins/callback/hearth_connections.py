"""Callback: drop the SSH connection that is kept to a node after a task failed there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ansible.playbook.play_context import PlayContext
from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import connection_loader
from ansible.template import Templar

if TYPE_CHECKING:  # missing in an older Ansible, which the callback of stdout refuses
    from ansible.executor.task_result import CallbackTaskResult

DOCUMENTATION = r"""
name: hearth_connections
type: aggregate
short_description: No kept connection outlives a failure
description:
  - SSH keeps a connection open after a task (C(ControlPersist)). What sshd decided when it was
    opened holds as long, such as that a password has expired, or the groups of the user. Whoever
    cures the cause and plays again within that time would see the same failure.
  - A command that is still running on the connection ends as it would have.
"""


class CallbackModule(CallbackBase):
    """Watches the results of all tasks."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "hearth_connections"

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Note the play, whose variables say how its nodes are reached."""
        self._play = play

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        """Drop the connection."""
        self._drop(result)

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        """Drop the connection."""
        self._drop(result)

    def _drop(self, result: CallbackTaskResult) -> None:
        manager = self._play.get_variable_manager()
        known = manager.get_vars(play=self._play, host=result.host, task=result.task)
        context = PlayContext(play=self._play)
        templar = Templar(loader=self._play.get_loader(), variables=known)
        context.remote_addr = result.host.address
        kind = templar.template(known.get("ansible_connection", "ssh"))
        if kind not in ("ssh", "ansible.builtin.ssh"):
            return
        connection = connection_loader.get("ssh", context, os.devnull)
        options = connection._resolve_option_variables(known, templar)
        connection.set_options(var_options=options)
        connection.reset()
