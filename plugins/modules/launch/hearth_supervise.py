#!/usr/bin/python
"""Ansible module: start or stop a run's supervisor on one node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_supervise
short_description: Start or stop the supervisor of a run on this node, or submit its Slurm job
description:
  - Calls C(python -m hearth.supervisor) from the workspace of the node.
  - What is wrong comes back as RV(findings) and does not fail the task, so that the findings of
    all nodes can be shown together (see M(hearth_verdict)).
options:
  verb:
    description:
      - V(start) writes the run file and the launch spec, and starts the supervisor. While a run
        is under way here nothing is written, unless it was begun with this very spec, or this
        one waits for its turn. Where the spec says so, the supervisor waits for the job of Slurm
        that starts it.
      - V(submit) submits that job from this node, after the start on all.
      - V(stop) asks for a stop after the current step; with O(now) it ends the run at once.
    type: str
    choices: [start, submit, stop]
    required: true
  spec:
    description: The launch spec; paths may start with C(~).
    type: dict
    required: true
  token:
    description: Secret shared by the supervisors of the run; wanted by V(start).
    type: str
  secrets:
    description: Variables for the ranks alone, such as an API key.
    type: dict
    default: {}
  run_file:
    description: Text of C(run.yml); wanted by V(start).
    type: str
  job:
    description: Text of the batch script; wanted by V(submit).
    type: str
  now:
    description: Stop at once, without finishing the step.
    type: bool
    default: false
"""

import json
import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.files import alone
from ansible.module_utils.hearth.base.locks import is_in_queue
from ansible.module_utils.hearth_node.base import (
    Report,
    absolute,
    environment,
    hearth,
    run_under_way,
    text_of,
    write_private,
)
from ansible.module_utils.hearth_node.runs.command import lacks_code


def main() -> None:
    """Run the module.

    It returns `findings`, the supervisor's `record`, and the absolute path of the `workspace`.
    """
    module = AnsibleModule(
        argument_spec={
            "verb": {"type": "str", "choices": ["start", "submit", "stop"], "required": True},
            "spec": {"type": "dict", "required": True},
            "token": {"type": "str", "no_log": True},
            "secrets": {"type": "dict", "default": {}, "no_log": True},
            "run_file": {"type": "str"},
            "job": {"type": "str"},
            "now": {"type": "bool", "default": False},
        },
        required_if=[("verb", "start", ["token", "run_file"]), ("verb", "submit", ["job"])],
        supports_check_mode=True,
    )
    spec = dict(module.params["spec"])
    for path in ("workspace", "python", "models"):
        if spec.get(path):
            spec[path] = absolute(spec[path])
    if module.params["token"]:
        spec["token"] = module.params["token"]
    workspace = spec["workspace"]
    answer = {"workspace": workspace, "changed": False, "findings": []}
    if module.check_mode:
        module.exit_json(**answer | {"changed": True})
    if lacks := lacks_code(workspace):
        module.exit_json(**answer | {"findings": lacks})
    report = {"start": start, "submit": submit, "stop": stop}[module.params["verb"]](module, spec)
    changed = bool(report.record.get("started") or report.record.get("asked"))
    module.exit_json(
        **answer | {"changed": changed, "findings": report.findings, "record": report.record}
    )


def _call(
    module: AnsibleModule, spec: dict, *arguments: str, secrets: dict[str, str] | None = None
) -> Report:
    """Run one verb of the supervisor."""
    own = environment(spec["workspace"], spec["node"], spec.get("models"), secrets or {})
    variables = spec.get("environment", {}) | own
    return hearth(module, spec["python"], ["hearth.supervisor", *arguments], variables)


def start(module: AnsibleModule, spec: dict) -> Report:
    """Write the run's files and start its supervisor, unless a run is under way.

    The files of a run under way stay unchanged, since it reads them again after a reboot. Only the
    same start may come twice: Ansible repeats it after a broken connection.
    """
    workspace, text = spec["workspace"], json.dumps(spec, indent=2) + "\n"
    config = os.path.join(workspace, "config")
    path = os.path.join(config, f"{spec['run']}.json")
    try:
        # One start at a time, until its run is under way: files never mix.
        with alone(Path(config)):
            run = run_under_way(workspace)
            if is_in_queue(workspace, spec["run"]):
                run = spec["run"]
            elif run != spec["run"] and spec.get("queue"):
                run = ""  # it begins after that one
            if run and (run != spec["run"] or text_of(path) != text):
                busy = f"run '{run}' is under way on this node: wait for it or stop it"
                return Report([f"{workspace}: {busy}"])
            return _lay_down_and_start(module, spec, path, text)
    except OSError as error:
        return Report([f"{error.filename or workspace} cannot be written: {error.strerror}"])


def _lay_down_and_start(module: AnsibleModule, spec: dict, path: str, text: str) -> Report:
    """Write the run file, the spec (to `path`) and the secrets, and start the supervisor.

    Secrets are in a separate file that does not outlive the run: a supervisor run by systemd needs
    them again after a reboot and removes them at the end; any other supervisor has read them when
    this returns. A job of Slurm has them in its environment.
    """
    results = os.path.join(spec["workspace"], "results", spec["run"])
    hidden = os.path.join(spec["workspace"], "config", f"{spec['run']}.secrets")
    secrets = {name: value for name, value in module.params["secrets"].items() if value}
    report = Report([])
    try:
        os.makedirs(results, exist_ok=True)
        write_private(os.path.join(results, "run.yml"), module.params["run_file"])
        write_private(path, text)
        if not spec.get("slurm"):
            write_private(hidden, json.dumps(secrets))
        report = _call(module, spec, "start", "--spec", path)
    finally:
        if not report.record.get("unit") and os.path.exists(hidden):
            os.unlink(hidden)
    return report


def submit(module: AnsibleModule, spec: dict) -> Report:
    """Write the batch script beside the run file, and submit it."""
    workspace, run = spec["workspace"], spec["run"]
    script = os.path.join(workspace, "results", run, "job.sbatch")
    try:
        write_private(script, module.params["job"])
    except OSError as error:
        return Report([f"{script} cannot be written: {error.strerror}"])
    path = os.path.join(workspace, "config", f"{run}.json")
    return _call(module, spec, "submit", "--spec", path, secrets=module.params["secrets"])


def stop(module: AnsibleModule, spec: dict) -> Report:
    """Request the run to stop here; without a record, as after a disk loss, there is no run."""
    record = os.path.join(spec["workspace"], "results", spec["run"], "supervisor.json")
    if not os.path.exists(record):
        return Report([], record={"asked": False})
    now = ["--now"] if module.params["now"] else []
    return _call(module, spec, "stop", "--workspace", spec["workspace"], "--run", spec["run"], *now)


if __name__ == "__main__":
    main()
