#!/usr/bin/python
"""Ansible module: install exactly the packages of a lock file in a Python environment."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_packages
short_description: Python packages of a node, by lock file
description:
  - V(look) compares the versions installed in an environment with those of the lock. Packages that
    the lock does not name are left alone.
  - V(stock) says which of the wheels that the node needs are not yet on it, and whole.
  - V(install) installs wheels that are on the node, with hashes required and no index asked.
  - The action plugin of the same name works on the controller; it reads the lock files there, and
    sends a node the wheels that it lacks.
  - What V(look) finds wrong comes back as RV(findings) and does not fail the task (see
    M(hearth_verdict)).
options:
  verb:
    description: What to do.
    type: str
    choices: [look, stock, install]
    required: true
  python:
    description: The environment's Python, such as C(~/.local/share/hearth/venv/bin/python).
    type: str
    required: true
  mode:
    description: What makes the environment where there is none.
    type: str
    choices: [conda, venv]
    default: venv
  base:
    description: With O(mode=venv), Python that makes the environment.
    type: str
    default: python3
  miniforge:
    description: With O(mode=conda), folder of Hearth's own Miniforge.
    type: str
    default: ~/.local/share/hearth/miniforge
  installers:
    description: With O(mode=conda), C(url) and C(sha256) of its installer by processor.
    type: dict
    default: {}
  lock:
    description: >-
      Which lock holds; V(auto) is C(gpu) where an NVIDIA driver that torch can use is loaded and
      drives a GPU, else C(cpu).
    type: str
    choices: [auto, cpu, gpu]
    default: auto
  wanted:
    description: Versions by package, by lock. From the action plugin.
    type: dict
    default: {}
  requirements:
    description: Folder of the controller with the lock files. For the action plugin only.
    type: path
  look:
    description: What V(look) returned, for V(install). For the action plugin only.
    type: dict
  wheels:
    description: The wheels of this node, from M(hearth_supplies). For the action plugin only.
    type: list
    elements: dict
  files:
    description: Checksum (SHA-256) of each wheel by its name. From the action plugin.
    type: dict
    default: {}
  locked:
    description: What V(install) installs, as pip reads it, with hashes. From the action plugin.
    type: str
    default: ""
  folder:
    description: Folder of the wheels on the node.
    type: str
    default: ~/.cache/hearth/incoming
  needed:
    description: Bytes that must be free to send and install them. From the action plugin.
    type: int
    default: 0
  keep:
    description: >-
      Whether the packages' files stay in O(folder) after they were installed. From the action
      plugin, on the controller itself.
    type: bool
    default: false
  extra:
    description:
      - With V(look), the packages that the inventory adds. For the action plugin only.
    type: list
    elements: str
    default: []
  extra_lock:
    description: File of the controller with their exact versions. For the action plugin only.
    type: path
  added:
    description: >-
      With V(install), the names of all packages that the inventory adds, with their requirements.
      From the action plugin.
    type: list
    elements: str
    default: []
  build_packages:
    description: >-
      Whether packages of Debian that Triton lacks to build kernels come back as
      RV(build_packages), to be installed; otherwise they are a finding.
    type: bool
    default: false
"""

import contextlib
import os
import platform
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.commands import run
from ansible.module_utils.hearth.base.systems import (
    PROBE_HEADERS,
    glibc,
    install_command,
    missing_packages,
)
from ansible.module_utils.hearth_node.base import absolute, write_private
from ansible.module_utils.hearth_node.driver.inspect import loaded
from ansible.module_utils.hearth_node.environment.python import (
    CONDA_PYTHON,
    added,
    differing,
    inspect_environment,
    is_own,
    lacks_name,
    lock_for,
    note_added,
    was_interrupted,
)
from ansible.module_utils.hearth_node.workspace.folder import differing as changed_files

_GPUS = "/proc/driver/nvidia/gpus"


def base_version(base: str) -> tuple[list[int] | None, str]:
    """Return the version of the Python that creates a venv, or None and the reason."""
    code = "import sys; print(*sys.version_info[:2]); import ensurepip, venv"
    done = run(base, "-c", code)
    if done.returncode and not done.stdout.strip():
        why = (done.stderr.strip() or "it says nothing").splitlines()[-1]
        return None, (
            f"python_base {base} cannot be run here ({why}): name another, or set python_mode: "
            "conda"
        )
    version = [int(part) for part in done.stdout.split()]
    if done.returncode:
        minor = "{}.{}".format(*version)
        return None, (
            f"{base} (Python {minor}) cannot make virtual environments, a part that Debian and "
            f"Ubuntu ship apart: sudo apt install python{minor}-venv, or set python_mode: conda"
        )
    if version < [3, 11]:
        return None, (
            f"{base} is Python {version[0]}.{version[1]}, and Hearth needs 3.11 or newer: set "
            "python_mode: conda, or name a newer one by python_base"
        )
    return version, ""


def conda_findings(python: str, miniforge: str, pinned: bool) -> list[str]:
    """Return the reasons why conda cannot create the environment of `python`."""
    findings = []
    if not is_own(python, miniforge):
        findings.append(
            f"hearth_python is {python}, which is no environment of {miniforge}: leave "
            "hearth_python out, or set python_mode: venv"
        )
    if not pinned:
        findings.append(
            f"no Miniforge is pinned for {platform.machine()}: add one to "
            "python_miniforge_installers, or set python_mode: venv"
        )
    return findings


def do_inspect(module: AnsibleModule) -> dict:
    """Return the packages that differ from the lock, and the facts needed to correct them."""
    params, findings = module.params, []
    gpus = len(os.listdir(_GPUS)) if os.path.isdir(_GPUS) else 0
    kind = lock_for(params["lock"], loaded()[0], gpus)
    python = absolute(params["python"])
    here = inspect_environment(python)
    locked = params["wanted"].get(kind, {})
    wrong = differing(locked, here.packages if here else {})
    others = {name: v for name, v in here.packages.items() if name not in locked} if here else {}
    version: list[int] | None = None
    lacks_miniforge, installer = False, params["installers"].get(platform.machine())
    if here:
        version = list(here.version)
        if wrong and not here.pip:
            findings = [
                f"{python} has no pip, so nothing can be installed there: leave hearth_python out, "
                "and Hearth makes an environment of its own"
            ]
    elif params["mode"] == "conda":
        version = [int(part) for part in CONDA_PYTHON.split(".")]
        miniforge = absolute(params["miniforge"])
        conda = os.path.join(miniforge, "bin", "conda")
        lacks_miniforge = was_interrupted(miniforge) or not os.access(conda, os.X_OK)
        findings = conda_findings(python, miniforge, bool(installer) or not lacks_miniforge)
    else:
        version, why = base_version(params["base"])
        findings = [why] if why else []
    # An environment that conda is yet to make has its headers.
    interpreter = python if here else params["base"] if params["mode"] == "venv" else ""
    lacking = []
    if kind == "gpu" and version:
        headers = not interpreter or run(interpreter, "-c", PROBE_HEADERS).returncode == 0
        lacking = missing_packages(version, headers)
    if lacking and not (params["build_packages"] and shutil.which("apt-get")):
        findings.append(
            f"{', '.join(lacking)} missing: with a C compiler and Python's headers Triton builds "
            f"the GPU's kernels: {install_command(lacking)}, or their equivalent on this system"
        )
        lacking = []
    if wrong and not glibc():
        findings.append("this machine has no glibc, which all wheels of the lock are built for")
    return {
        "findings": findings,
        "kind": kind,
        "present": here is not None,
        "lacks_miniforge": lacks_miniforge,
        "build_packages": lacking,
        "installer": installer,
        "differing": wrong,
        "others": others,
        "added": sorted(added(python)) if here else [],
        "unnamed": params["mode"] == "conda" and lacks_name(python, params["miniforge"]),
        "home": absolute("~"),
        "target": {"python": version, "machine": platform.machine(), "glibc": glibc()},
    }


def do_stock(module: AnsibleModule) -> dict:
    """Create the folder for wheels; return the missing ones. Fails if the disk is too full."""
    folder = absolute(module.params["folder"])
    os.makedirs(folder, mode=0o700, exist_ok=True)
    missing = changed_files(folder, module.params["files"], keep=True)
    free, needed = shutil.disk_usage(folder).free, module.params["needed"]
    if free < needed:
        module.fail_json(
            msg=f"{folder} has {free >> 20} MB free, and the packages need {needed >> 20} MB: free "
            "some space"
        )
    return {"missing": missing, "folder": folder}


def do_install(module: AnsibleModule) -> dict:
    """Install from the local wheels; return the packages that differed. Fails if any still do.

    Of the packages that were added earlier, those that are not `added` any more are removed.
    """
    params = module.params
    python, folder = absolute(params["python"]), absolute(params["folder"])
    wanted = params["wanted"]["locked"]
    before = inspect_environment(python)
    here = before.packages if before else {}
    wrong, surplus = differing(wanted, here), sorted(added(python) - set(params["added"]))
    if not (wrong or surplus):
        return {"differing": [], "changed": False}
    if broken := changed_files(folder, params["files"], keep=True):
        module.fail_json(msg=f"{', '.join(broken)} did not arrive whole: call this again")
    if surplus:
        remove(module, python, surplus)
    # Only what was not there before is Hearth's to remove one day.
    brought = {each["name"] for each in wrong if not each["has"]}
    note_added(python, (added(python) | brought) & set(params["added"]))
    if wrong:
        install(module, python, folder)
    if not params["keep"]:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # ~/.cache/hearth, unless it has other files
            os.rmdir(os.path.dirname(folder))
    return {"differing": wrong, "changed": True}


def remove(module: AnsibleModule, python: str, names: list[str]) -> None:
    """Remove packages; fail if pip cannot."""
    done = run(
        *(python, "-m", "pip", "--isolated", "uninstall", "--quiet", "--yes"),
        *("--disable-pip-version-check", *names),
        seconds=None,
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-6:])
        module.fail_json(msg=f"pip could not remove {', '.join(names)} from {python}:\n{last}")


def install(module: AnsibleModule, python: str, folder: str) -> None:
    """Install the locked packages from `folder`; fail if any differs afterwards."""
    # Not module.tmpdir: Ansible warns where it has to make the folder around that.
    with tempfile.TemporaryDirectory() as aside:
        path = os.path.join(aside, "locked.txt")
        write_private(path, module.params["locked"])
        # Isolated: the user's own pip settings (index, proxy, target) must not apply. Compiling all
        # modules would take longer than the rest; Python compiles the imported ones.
        done = run(
            *(python, "-m", "pip", "--isolated", "install", "--quiet", "--no-input"),
            *("--disable-pip-version-check", "--no-warn-script-location", "--no-compile"),
            *("--no-index", "--find-links", folder, "--no-deps", "--require-hashes", "-r", path),
            seconds=None,
        )
    after = inspect_environment(python)
    left = differing(module.params["wanted"]["locked"], after.packages if after else {})
    if done.returncode or left:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-6:])
        module.fail_json(msg=f"pip could not install {len(left)} packages into {python}:\n{last}")


def main() -> None:
    """Run the module.

    `look` returns `findings`, the `kind` of the lock that holds (cpu or gpu), whether there is an
    environment (`present`), whether conda `lacks_miniforge` and the `installer` for this processor,
    the `build_packages` to install, the `differing` packages (`name`, `has`, `wants`), the `others`
    that the lock does not name and those of them that Hearth has `added`, the `target`
    that wheels must fit (`python`, `machine`, minor `glibc`), and the `home` where an `unnamed`
    environment gets its name for conda.
    `stock` returns the `missing` wheels and their `folder`, `install` those that were `differing`.
    """
    module = AnsibleModule(
        argument_spec={
            "verb": {"type": "str", "choices": ["look", "stock", "install"], "required": True},
            "python": {"type": "str", "required": True},
            "mode": {"type": "str", "choices": ["conda", "venv"], "default": "venv"},
            "base": {"type": "str", "default": "python3"},
            "miniforge": {"type": "str", "default": "~/.local/share/hearth/miniforge"},
            "installers": {"type": "dict", "default": {}},
            "lock": {"type": "str", "choices": ["auto", "cpu", "gpu"], "default": "auto"},
            "wanted": {"type": "dict", "default": {}},
            "files": {"type": "dict", "default": {}},
            "locked": {"type": "str", "default": ""},
            "added": {"type": "list", "elements": "str", "default": []},
            "folder": {"type": "str", "default": "~/.cache/hearth/incoming"},
            "needed": {"type": "int", "default": 0},
            "build_packages": {"type": "bool", "default": False},
            "keep": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    verb = module.params["verb"]
    if module.check_mode and verb != "look":
        module.exit_json(changed=False, missing=[], differing=[])
    try:
        said = {"look": do_inspect, "stock": do_stock, "install": do_install}[verb](module)
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}; correct that")
    module.exit_json(**{"changed": False} | said)


if __name__ == "__main__":
    main()
