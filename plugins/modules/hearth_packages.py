#!/usr/bin/python
"""Ansible module: a Python environment that holds exactly what a lock file says."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_packages
short_description: Python packages of a node, by lock file
description:
  - Compares the versions installed in an environment with those of a lock file. What differs is
    installed by pip with hashes required; packages that the lock does not name are let be.
  - Without an environment at O(python) one is made with O(base) and C(venv).
options:
  python:
    description: The environment's Python, such as C(~/.local/share/hearth/venv/bin/python).
    type: str
    required: true
  base:
    description: Python that makes the environment if there is none.
    type: str
    default: python3
  lock:
    description: Text of the lock file.
    type: str
    required: true
  index:
    description: Further package index, for packages that the configured one does not have.
    type: str
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Packages as locked
  hearth_packages:
    python: "{{ hearth_python }}"
    lock: "{{ lookup('ansible.builtin.file', 'requirements/cpu.lock') }}"
"""

RETURN = r"""
differing:
  description: Packages that were missing or had another version, C(name==wanted) each.
  returned: always
  type: list
  elements: str
"""

import json
import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node import absolute, write_private

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)
_INSTALLED = """
import importlib.metadata, json
print(json.dumps([[d.metadata["Name"], d.version] for d in importlib.metadata.distributions()]))
"""


def normal(name: str) -> str:
    """Return a package name as PEP 503 spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lock: str) -> dict[str, str]:
    """Return the version of each package that the text of a lock file names."""
    return {normal(name): version for name, version in _PIN.findall(lock)}


def differing(lock: str, installed: list[list[str]]) -> list[str]:
    """Return what the lock wants and the environment does not have, `name==version` each."""
    here = {normal(name): version for name, version in installed if name}
    return [f"{name}=={want}" for name, want in pins(lock).items() if here.get(name) != want]


def installed(module: AnsibleModule, python: str) -> list[list[str]]:
    """Return name and version of everything in the environment of `python`."""
    _, out, _ = module.run_command([python, "-c", _INSTALLED], check_rc=True)
    return json.loads(out)


def make(module: AnsibleModule, python: str, base: str) -> None:
    """Make an environment in which `python` is the interpreter, or fail with the reason."""
    folder = os.path.dirname(os.path.dirname(python))
    status, out, errors = module.run_command([base, "-m", "venv", folder], handle_exceptions=True)
    if status:
        module.fail_json(
            msg=f"{base} -m venv {folder} does not work here: {(out + errors).strip()}\n"
            "On Debian and Ubuntu that part comes apart: sudo apt install python3-venv"
        )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "str", "required": True},
            "base": {"type": "str", "default": "python3"},
            "lock": {"type": "str", "required": True},
            "index": {"type": "str"},
        },
        supports_check_mode=True,
    )
    python, lock = absolute(module.params["python"]), module.params["lock"]
    present = os.access(python, os.X_OK)
    wrong = differing(lock, installed(module, python) if present else [])
    if not wrong or module.check_mode:
        module.exit_json(changed=bool(wrong), differing=wrong)
    if not present:
        make(module, python, module.params["base"])
    path = os.path.join(module.tmpdir, "requirements.lock")
    write_private(path, lock)
    extra = ["--extra-index-url", module.params["index"]] if module.params["index"] else []
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    exact = ["--no-deps", "--require-hashes", "-r", path]
    status, out, errors = module.run_command(
        [python, "-m", "pip", "install", *quiet, *extra, *exact]
    )
    if status:
        last = "\n".join((out + errors).strip().splitlines()[-6:])
        module.fail_json(msg=f"pip could not install {len(wrong)} packages into {python}:\n{last}")
    module.exit_json(changed=True, differing=wrong)


if __name__ == "__main__":
    main()
