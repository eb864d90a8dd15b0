#!/usr/bin/python
"""Ansible module: check a machine before anything is changed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_preflight
short_description: Whether a machine can become a node
description:
  - Needs no root and changes nothing. What stands in the way comes back as RV(findings) and does
    not fail the task (see M(hearth_verdict)).
  - The action plugin of the same name compares the clock with the controller's.
options:
  address:
    description: The node's cluster address.
    type: str
    required: true
  peers:
    description: Cluster address of every other node, by its name.
    type: dict
    default: {}
  workspace:
    description: Folder that the workspace is or will be in.
    type: str
    required: true
  python:
    description: Python of the node's environment.
    type: str
    required: true
  lock:
    description: Which lock file is installed; V(auto) takes the GPU's where there is an NVIDIA GPU.
    type: str
    choices: [auto, cpu, gpu]
    default: auto
  disk_gb:
    description: Free space in GB that an environment takes; 0 is what the lock file needs.
    type: int
    default: 0
  power_limit:
    description: >-
      Watts that each NVIDIA GPU is to be held to, 0 for no limit. Compared with the ranges of the
      cards if the driver is there already; else the stage that sets the limit compares them.
    type: int
    default: 0
  other_os:
    description: Whether an operating system that Hearth does not know is let pass.
    type: bool
    default: false
  index:
    description: Host of the package index, which is only looked for.
    type: str
    default: pypi.org
"""

import os
import platform
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base import taken_address
from ansible.module_utils.hearth.base.nics import answers, is_own
from ansible.module_utils.hearth.base.nvidia import NVIDIA
from ansible.module_utils.hearth.base.systems import has_compiler, unknown_architecture, unknown_os
from ansible.module_utils.hearth_node.base import absolute, nearest_folder, text_of
from ansible.module_utils.hearth_node.driver import inspect, power_limit
from ansible.module_utils.hearth_node.system import wsl
from ansible.module_utils.hearth_node.system.user import login_user, open_home

# GB on disk for the environment of a lock file, including pip's temporary files.
ENVIRONMENT_GB = {"cpu": 6, "gpu": 20}
# GB for runs and logs if the environment already exists; models come on top.
WORK_GB = 2


def old_python(version: str) -> str:
    """Return the finding about a Python that is too old for a node, or ''."""
    if tuple(map(int, version.split(".")[:2])) >= (3, 10):
        return ""
    return (
        f"its Python is {version}; 3.10 or newer is needed. Install one and name it by "
        "ansible_python_interpreter"
    )


def too_full(folder: str, free_gb: float, wanted_gb: int, why: str) -> str:
    """Return the finding about a disk with too little space, or ''."""
    if free_gb >= wanted_gb:
        return ""
    return f"{free_gb:.1f} GB are free in {folder}; {wanted_gb} GB are needed {why}"


def rooms(given: dict[str, Any], gpu: bool) -> list[str]:
    """Return the findings about the disks of the environment and the workspace."""
    python, workspace = absolute(given["python"]), absolute(given["workspace"])
    lock = given["lock"] if given["lock"] != "auto" else "gpu" if gpu else "cpu"
    needs = [(nearest_folder(workspace), WORK_GB, "for the workspace")]
    if not os.path.exists(python):
        wanted = given["disk_gb"] or ENVIRONMENT_GB[lock]
        folder = nearest_folder(os.path.dirname(python))
        needs.append((folder, wanted, f"for the Python environment ({lock}.lock)"))
    findings = []
    for folder, wanted, why in needs:
        findings.append(too_full(folder, shutil.disk_usage(folder).free / 1e9, wanted, why))
    return findings


def limits(watts: int) -> list[str]:
    """Return the findings about a limit on the power of the GPUs, if the driver answers."""
    return power_limit.findings(watts, power_limit.read_limits()[0]) if watts else []


def inspect_machine(given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the facts about this machine, and findings."""
    release = inspect.system()
    windows = wsl.inspect_wsl()
    gpu = windows.gpu or any(card["vendor"] == NVIDIA for card in inspect.cards())
    own, systemd = is_own(given["address"]), os.path.isdir("/run/systemd/system")
    with ThreadPoolExecutor(len(given["peers"]) + 1) as threads:
        index = threads.submit(answers, given["index"], 443)
        asked = {name: threads.submit(answers, at, 22) for name, at in given["peers"].items()}
    findings = [
        "" if given["other_os"] else unknown_os(release),
        unknown_architecture(platform.machine()),
        old_python(platform.python_version()),
        *rooms(given, gpu),
        *wsl.findings(windows, given["address"], own, systemd, given["lock"]),
        *limits(given["power_limit"]),
        # Over SSH by a password; the keys of the next stage would be in vain.
        open_home(login_user()) if "SSH_CONNECTION" in os.environ else "",
    ]
    if not (systemd or windows.version):
        findings.append("it was not started by systemd, which runs are started with")
    facts = {
        "os": (release["name"] or "?")
        + (f" under WSL {windows.version}" if windows.version else ""),
        "arch": platform.machine(),
        "python": platform.python_version(),
        "free_gb": round(
            shutil.disk_usage(nearest_folder(absolute(given["workspace"]))).free / 1e9
        ),
        "network": taken_address.network_view(given["peers"].values()),
        "machine_id": text_of("/etc/machine-id").strip(),
        "has_address": own,
        "peers": sorted(name for name, answer in asked.items() if answer.result()),
        "index": index.result(),
        "nvidia": gpu,
        "compiler": has_compiler(),
        # Last, so that the controller reads its own clock shortly afterwards.
        "time": time.time(),
    }
    return facts, [finding for finding in findings if finding]


def main() -> None:
    """Run the module; return the `facts` and `findings` about this machine."""
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "required": True},
            "peers": {"type": "dict", "default": {}},
            "workspace": {"type": "str", "required": True},
            "python": {"type": "str", "required": True},
            "lock": {"type": "str", "choices": ["auto", "cpu", "gpu"], "default": "auto"},
            "disk_gb": {"type": "int", "default": 0},
            "power_limit": {"type": "int", "default": 0},
            "other_os": {"type": "bool", "default": False},
            "index": {"type": "str", "default": "pypi.org"},
        },
        supports_check_mode=True,
    )
    facts, findings = inspect_machine(module.params)
    module.exit_json(changed=False, facts=facts, findings=findings)


if __name__ == "__main__":
    main()
