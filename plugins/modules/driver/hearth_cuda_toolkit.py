#!/usr/bin/python
"""Ansible module: install the CUDA toolkit, and leave the driver as it is."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_cuda_toolkit
short_description: Install a package of the CUDA toolkit, with nvcc
description:
  - What apt would do is known before anything is changed. A call that would install or change a
    driver or a kernel, or remove anything, comes back as RV(findings), as does a package that apt
    does not know (see M(hearth_verdict)).
  - NVIDIA's packages put nvcc beside the search path; login shells get it.
options:
  package:
    description: The package.
    type: str
    required: true
  new_source:
    description: Whether the repository that has it was added just now, or would be.
    type: bool
    default: false
"""

import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.systems import CUDA
from ansible.module_utils.hearth_node.changes.record import Journal, recorded
from ansible.module_utils.hearth_node.driver.apt import Apt, Simulation, install

PROFILE = "/etc/profile.d/hearth-cuda.sh"

_SCRIPT = f"""\
# Hearth: nvcc, which NVIDIA's packages put beside the search path.
if [ -x {CUDA}/nvcc ]; then
    PATH=$PATH:{CUDA}
fi
"""
_ALONE = ("-o", "APT::Install-Recommends=false")
_DRIVER = re.compile(
    r"nvidia-(driver|kernel|dkms|headless|utils|open|firmware|compute|modprobe|persistenced)(-.*)?"
    r"|libnvidia-(?!ml-dev).*|libcuda1.*|cuda-drivers.*|xserver-.*|linux-(image|modules)-.*"
)


def obstacle(package: str, simulation: Simulation) -> str:
    """Return the reason not to install the toolkit, or ''."""
    driver = sorted(filter(_DRIVER.fullmatch, simulation.brings))
    what = ""
    if simulation.error:
        what = f"apt cannot install it ({simulation.error})"
    elif simulation.removes:
        what = f"apt would remove {', '.join(sorted(simulation.removes))}"
    elif driver:
        what = f"apt would change the driver or the kernel with it ({', '.join(driver)})"
    return what and f"cuda_toolkit: {package}: {what}: install a toolkit by hand, or set it to off"


def main() -> None:
    """Run the module; return the `findings`."""
    module = AnsibleModule(
        argument_spec={
            "package": {"type": "str", "required": True},
            "new_source": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    package, apt = module.params["package"], Apt(_ALONE)
    changed = package not in apt.installed
    if changed and module.check_mode and module.params["new_source"]:
        module.exit_json(changed=True, findings=[])
    if changed and not apt.has(package):
        where = "non-free or multiverse in apt's sources, or driver_repo: nvidia in the inventory"
        finding = f"cuda_toolkit: apt knows no package {package}: it needs {where}"
        module.exit_json(changed=False, findings=[finding])
    if changed and (finding := obstacle(package, apt.simulate((package,)))):
        module.exit_json(changed=False, findings=[finding])
    if changed and not module.check_mode and (trouble := install((*_ALONE, package))):
        module.fail_json(msg=trouble)
    with recorded(module, "The installed packages cannot be recorded"):
        record = Journal("driver", module.check_mode)
        if changed and not module.check_mode:
            record.note(
                f"CUDA toolkit installed: {package} {Apt().installed[package]}. To remove it: "
                f"sudo apt-get autoremove {package}"
            )
        if os.path.isdir(CUDA):
            changed |= record.write(PROFILE, _SCRIPT.encode(), mode=0o644).changed
    module.exit_json(changed=changed, findings=[])


if __name__ == "__main__":
    main()
