#!/usr/bin/python
"""Ansible module: check, start, stop or inspect a run's supervisor on one node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_supervise
short_description: Check, start or stop the supervisor of a run on this node
description:
  - Calls C(python -m hearth.supervise) from the workspace of the node.
  - What is wrong comes back as RV(findings) and does not fail the task, so that the findings of
    all nodes can be shown together (see M(hearth_verdict)).
options:
  verb:
    description:
      - V(check) looks whether the run could start here, and changes nothing.
      - V(start) lays down the run file and the launch spec, and starts the supervisor. While a run
        is under way here nothing is laid down, unless it was begun with this very spec.
      - V(stop) asks for a stop after the current step; with O(now) it ends the run at once.
    type: str
    choices: [check, start, stop]
    required: true
  spec:
    description: The launch spec; paths may start with C(~).
    type: dict
    required: true
  token:
    description: Secret shared by the supervisors of the run; wanted by V(check) and V(start).
    type: str
  secrets:
    description: Variables for the ranks that nobody else may see, such as an API key.
    type: dict
    default: {}
  run_file:
    description:
      - Text of C(run.yml); wanted by V(start). With V(check), that another run has left its files
        under the name is a finding.
    type: str
  now:
    description: Stop at once, without finishing the step.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Is everything ready here?
  hearth_supervise:
    verb: check
    spec: "{{ launch_spec }}"
"""

RETURN = r"""
findings:
  description: What stands in the way, one sentence each; empty if nothing does.
  returned: always
  type: list
  elements: str
facts:
  description: What was found out, such as the interface of the cluster address and a free port.
  returned: with verb check
  type: dict
record:
  description: What the supervisor says of itself.
  returned: with verbs start and stop
  type: dict
workspace:
  description: Absolute path of the workspace.
  returned: always
  type: str
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import (
    Report,
    absolute,
    environment,
    hearth,
    run_under_way,
    text_of,
    write_private,
)

_CREATED = re.compile(r"^created: ['\"]?([^'\"\n]+)", re.MULTILINE)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "verb": {"type": "str", "choices": ["check", "start", "stop"], "required": True},
            "spec": {"type": "dict", "required": True},
            "token": {"type": "str", "no_log": True},
            "secrets": {"type": "dict", "default": {}, "no_log": True},
            "run_file": {"type": "str"},
            "now": {"type": "bool", "default": False},
        },
        required_if=[("verb", "check", ["token"]), ("verb", "start", ["token", "run_file"])],
        supports_check_mode=True,
    )
    spec = dict(module.params["spec"])
    for path in ("workspace", "python", "models"):
        if spec.get(path):
            spec[path] = absolute(spec[path])
    if module.params["token"]:
        spec["token"] = module.params["token"]
    verb, workspace = module.params["verb"], spec["workspace"]
    answer = {"workspace": workspace, "changed": verb != "check", "findings": [], "facts": {}}
    if not os.path.isdir(os.path.join(workspace, "scripts", "hearth")):
        if not module.check_mode:
            answer["findings"] = [f"{workspace} holds no training code; provision.yml lays it down"]
        module.exit_json(**answer | {"changed": False})
    if module.check_mode and verb != "check":
        module.exit_json(**answer)

    report = {"check": check, "start": start, "stop": stop}[verb](module, spec)
    answer |= {"findings": report.findings, "facts": report.facts}
    if verb != "check":
        answer["record"] = report.record
        answer["changed"] = bool(report.record.get("started") or report.record.get("asked"))
    module.exit_json(**answer)


def _call(module: AnsibleModule, spec: dict, *arguments: str) -> Report:
    """Run one verb of the supervisor."""
    variables = environment(spec["workspace"], spec["node"], spec.get("models"), {})
    return hearth(module, spec["python"], ["hearth.supervise", *arguments], variables)


def check(module: AnsibleModule, spec: dict) -> Report:
    """Return the obstacles to the run on this node. The spec is in a file only during the call.

    With a run file, another run of the same name is one: results, checkpoints and code would mix.
    """
    path = os.path.join(module.tmpdir, "spec.json")
    write_private(path, json.dumps(spec))
    report = _call(module, spec, "check", "--spec", path)
    folder = os.path.join(spec["workspace"], "results", spec["run"])
    there = _CREATED.search(text_of(os.path.join(folder, "run.yml")))
    asked = _CREATED.search(module.params["run_file"] or "")
    if there and asked and there[1] != asked[1]:
        report.findings.append(
            f"run: another run '{spec['run']}' lies in {folder}, made {there[1]}; choose another "
            f"name, or remove it with playbooks/runs.yml -e delete={spec['run']}"
        )
    return report


def start(module: AnsibleModule, spec: dict) -> Report:
    """Write the run's files and start its supervisor, unless a run is under way.

    The files of a run under way stay unchanged, since it reads them again after a reboot. Only the
    same start may come twice: Ansible repeats it after a broken connection.
    """
    workspace, text = spec["workspace"], json.dumps(spec, indent=2) + "\n"
    config = os.path.join(workspace, "config")
    path = os.path.join(config, f"{spec['run']}.json")
    try:
        with _alone(config):
            run = run_under_way(workspace)
            if run and (run != spec["run"] or text_of(path) != text):
                busy = f"run '{run}' is under way on this node: wait for it or stop it"
                return Report([f"{workspace}: {busy}"])
            return _lay_down_and_start(module, spec, path, text)
    except OSError as error:
        return Report([f"{error.filename or workspace} cannot be written: {error.strerror}"])


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Lock: one start at a time, until its run is under way, so that files never mix."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _lay_down_and_start(module: AnsibleModule, spec: dict, path: str, text: str) -> Report:
    """Write the run file, the spec (to `path`) and the secrets, and start the supervisor.

    Secrets are in a separate file that does not outlive the run: a supervisor run by systemd needs
    them again after a reboot and removes them at the end; any other supervisor has read them when
    this returns.
    """
    results = os.path.join(spec["workspace"], "results", spec["run"])
    hidden = os.path.join(spec["workspace"], "config", f"{spec['run']}.secrets")
    secrets = {name: value for name, value in module.params["secrets"].items() if value}
    report = Report([])
    try:
        os.makedirs(results, exist_ok=True)
        write_private(os.path.join(results, "run.yml"), module.params["run_file"])
        write_private(path, text)
        write_private(hidden, json.dumps(secrets))
        report = _call(module, spec, "start", "--spec", path)
    finally:
        if not report.record.get("unit") and os.path.exists(hidden):
            os.unlink(hidden)
    return report


def stop(module: AnsibleModule, spec: dict) -> Report:
    """Request the run to stop here; without a record, as after a disk loss, there is no run."""
    record = os.path.join(spec["workspace"], "results", spec["run"], "supervisor.json")
    if not os.path.exists(record):
        return Report([], record={"asked": False})
    now = ["--now"] if module.params["now"] else []
    return _call(module, spec, "stop", "--workspace", spec["workspace"], "--run", spec["run"], *now)


if __name__ == "__main__":
    main()
