"""Action plugin: train on one rank, on each node alone and on all together; compare the speeds.

Every run is a play of train.yml, so that the benchmark measures real training.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from hearth.base.errors import LaunchError
from hearth.base.files import alone
from hearth_controller.base.options import argument_spec
from hearth_controller.benchmark.nested import connection_options, forwarded, prompting_options
from hearth_controller.benchmark.plays import Plays
from hearth_controller.benchmark.session import begin, conclude, train

DOCUMENTATION = r"""
module: hearth_benchmark
short_description: Measure whether the cluster is faster than its nodes alone
description:
  - Works on the controller. Meant to run once.
options:
  verb:
    description:
      - V(begin) names the measurements, or resumes an interrupted benchmark.
      - V(stop) ends the runs that an interrupted benchmark may have left under way.
      - V(run) trains on the nodes whose turn it is.
      - V(conclude) shows the result and keeps it.
    type: str
    choices: [begin, stop, run, conclude]
    required: true
  folder:
    description: Folder of the controller that keeps benchmarks; of one of them, after V(begin).
    type: path
    required: true
  project:
    description: Folder of train.yml.
    type: path
    required: true
  run:
    description: The run to benchmark, as M(hearth_run) returns it; for V(begin).
    type: dict
    default: {}
  nodes:
    description: Names of the nodes, in order of rank; for V(begin).
    type: list
    elements: str
    default: []
  steps:
    description: Steps of a run that count; for V(begin).
    type: int
    default: 10
  warm_up:
    description: Steps before them that do not; for V(begin).
    type: int
    default: 2
  repeat:
    description: Runs of each configuration; for V(begin).
    type: int
    default: 1
  left_over:
    description: Names of runs to end; for V(stop).
    type: list
    elements: str
    default: []
  electricity_price:
    description: Price of a kWh, 0 if unknown; for V(conclude).
    type: float
    default: 0
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Run the requested verb."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        folder, verb = Path(given["folder"]), given["verb"]
        if verb == "begin":
            cannot, keep = prompting_options(context.CLIARGS), not self._task.check_mode
            return result | begin(folder, given, task_vars["hostvars"], cannot, keep)
        try:
            if verb == "conclude":
                return result | conclude(folder, given["electricity_price"])
            with alone(folder):
                typed = json.loads(json.dumps(load_extra_vars(self._loader), default=str))
                words = (connection_options(context.CLIARGS), forwarded(typed))
                plays = Plays(Path(given["project"]), folder, *words, self._display)
                if verb == "run":
                    return result | train(plays)
                for run in given["left_over"]:
                    plays.stop(run)
        except LaunchError as error:
            raise AnsibleError(str(error)) from None
        return result
