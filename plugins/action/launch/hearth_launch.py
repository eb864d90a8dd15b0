"""Action plugin: one stage of a launch on each node, or of a distribution."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.color import ANSIBLE_COLOR

from hearth_controller.base.node_program import after_mark, marked
from hearth_controller.base.options import argument_spec, run_module
from hearth_controller.base.screen import Screen
from hearth_controller.launch.bring import distribute
from hearth_controller.launch.course import Site
from hearth_controller.launch.launch import launch
from hearth_controller.launch.request import LaunchRequest
from hearth_controller.launch.stages import NodeCall, StageJournal
from hearth_controller.supply.code import bring_code
from hearth_controller.transfer.receive import Receiver

DOCUMENTATION = r"""
module: hearth_launch
short_description: Play one stage of the launch of a run
description:
  - The launch itself is a function of C(hearth_controller.launch). It decides what a stage calls on
    each node; a task whose stage it does not need is skipped.
  - An error of a node, also that it cannot be reached, is kept as its answer. The next stage
    fails with the findings of all nodes.
options:
  stage:
    description: Name of the stage.
    type: str
    required: true
  verb:
    description: V(launch) starts a run, V(distribute) only brings its model and data.
    type: str
    choices: [launch, distribute]
    default: launch
  run:
    description: The run, as M(hearth_run) returns it.
    type: dict
    required: true
  inventory:
    description: The inventory, as M(hearth_inventory) returns it.
    type: dict
    required: true
  own:
    description: Paths and options of this node, as M(hearth_inspect) takes them.
    type: dict
    required: true
  before:
    description: Results of earlier tasks on this node. With a finding among them nothing is called.
    type: list
    elements: raw
    default: []
  training:
    description: Folder of the controller that holds the training code.
    type: path
    required: true
  shared:
    description: The folder that all nodes share, if any.
    type: str
    default: ""
  direct_mb:
    description: Data files up to this size in MB come from the controller to every node.
    type: float
    default: 32
  launcher:
    description: V(slurm) or V(hearth), unless the run names one.
    type: str
    default: hearth
  slurm_options:
    description: Options of sbatch.
    type: list
    elements: str
    default: []
  timeouts:
    description: Timeouts of the supervisors in seconds.
    type: dict
    default: {}
  notify:
    description: Addresses that get messages of the run, separated by blanks.
    type: str
    default: ""
    no_log: true
"""

_OF_PROGRAMS = ("workspace", "python", "node", "models", "threads", "variables")
_WRONG = ("findings", "failed", "unreachable")

_SILENT = 60.0
"""Seconds without an answer after which a node counts as lost."""


class ActionModule(ActionBase):
    """Plays the part of its node in a stage."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the result of the node's last call; the first node also that of the stage."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        self._given, self._task_vars = given, task_vars
        request = LaunchRequest.from_facts(given["run"])
        journal = StageJournal(Path(C.DEFAULT_LOCAL_TMP) / f"hearth-{request.name}")
        site = self._site(request, journal.key)
        play = launch if given["verb"] == "launch" else distribute
        step, new = journal.step(self._task._uuid, given["stage"], lambda: play(request, site))
        if new and step.error:
            return result | {"failed": True, "msg": step.error, "together": True}
        said = dict(step.result) if new else {}
        if step.calls and "say" in said:  # what a run is about is read before it starts
            for line in str(said.pop("say")).splitlines():
                Screen(self._display).line(line.removeprefix("  "))
        node = task_vars["inventory_hostname"]
        if not (calls := step.calls.get(node)):
            return result | said | ({} if said else {"skipped": True})
        self._secrets = {
            "hub": os.environ.get("HF_TOKEN", ""),
            "wandb": os.environ.get("WANDB_API_KEY", ""),
            "notify": given["notify"],
            "key": journal.key,
        }
        answers = self._answers(calls)
        journal.record(self._task._uuid, node, answers)
        last = {name: value for name, value in answers[-1].items() if name not in _WRONG}
        changed = any(answer.get("changed") for answer in answers)
        return result | last | said | {"changed": changed}

    def _site(self, request: LaunchRequest, key: str) -> Site:
        given, inventory = self._given, self._given["inventory"]
        nodes = inventory["nodes"]
        slurm = (request.options.launcher or given["launcher"]) == "slurm"
        return Site(
            {str(node["name"]): str(node["address"]) for node in nodes},
            {str(node["name"]): str(node["slurm_node"]) for node in nodes} if slurm else {},
            tuple(given["slurm_options"]),
            given["training"],
            str(inventory["runs"]),
            str(inventory["hearth"]),
            given["shared"],
            given["direct_mb"] * 1e6,
            {name: float(seconds) for name, seconds in given["timeouts"].items()},
            notifies=bool(given["notify"]),
            check=self._task.check_mode,
            colours=bool(ANSIBLE_COLOR),
            call=hashlib.sha256(f"call {key}".encode()).hexdigest()[:16],
        )

    def _answers(self, calls: list[NodeCall]) -> list[dict[str, Any]]:
        """Call one after the other, until one finds something."""
        before = [each for each in self._given["before"] if isinstance(each, Mapping)]
        answers = [dict(each) for each in before if any(map(each.get, _WRONG))][:1]
        for call in calls:
            if answers and any(map(answers[-1].get, _WRONG)):
                break
            try:
                answer = self._call(call)
            except AnsibleConnectionFailure as error:
                answer = {"unreachable": True, "msg": str(error)}
            except AnsibleError as error:
                answer = {"failed": True, "msg": str(error)}
            answer.pop("invocation", None)
            answers.append(answer)
        return answers

    def _call(self, call: NodeCall) -> dict[str, Any]:
        """Call a module on the node, with what only this task knows."""
        arguments, own = dict(call.arguments), dict(self._given["own"])
        for option, secret in call.secrets.items():
            name, _, variable = option.partition(".")
            known = self._secrets[secret]
            arguments[name] = arguments.get(name, {}) | {variable: known} if variable else known
        spec = arguments.get("spec") or {}
        if spec.get("shared"):  # planned by the task of any node, and each may have its own path
            arguments["spec"] = {**spec, "shared": self._given["shared"]}
        if call.module == "hearth_inspect":
            arguments = own | arguments
        elif call.module == "hearth_command":
            arguments = {name: own[name] for name in _OF_PROGRAMS} | arguments
        elif call.module == "hearth_workspace":
            arguments["path"] = own["workspace"]
        if call.module in ("hearth_inspect", "hearth_workspace") and "source" in arguments:
            return bring_code(self, call.module, arguments, self._task_vars, C.DEFAULT_LOCAL_TMP)
        answer = run_module(self, call.module, arguments, self._task_vars)
        wrong = any(map(answer.get, _WRONG))
        return (
            self._followed(call, int(answer["facts"]["pid"]))
            if call.follow and not wrong
            else answer
        )

    def _followed(self, call: NodeCall, pid: int) -> dict[str, Any]:
        """Wait until a relay has brought everything, and show its progress."""
        own = self._given["own"]
        relay = (own["node"], call.follow["chain"], call.follow["id"], pid, own["workspace"])
        receiver = Receiver(*relay, self._ask, Screen(self._display))
        answered = time.monotonic()
        while True:
            try:
                if outcome := receiver.inspect():
                    return outcome
                answered = time.monotonic()
            except AnsibleConnectionFailure:
                if time.monotonic() - answered > _SILENT:
                    raise
            time.sleep(1)

    def _ask(self, command: str) -> str:
        answer = self._low_level_execute_command(marked(command), sudoable=False)
        if answer["rc"] != 0:
            raise AnsibleConnectionFailure(answer["stderr"] or f"status {answer['rc']}")
        try:
            return after_mark(str(answer["stdout"]))
        except ConnectionError as error:
            raise AnsibleConnectionFailure(str(error)) from None
