"""NVIDIA's driver and GPUs: listing, capabilities, signatures of its modules.

Standard library only: modules ship this file to machines that have no Hearth yet.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

# Ansible ships these files under a package of its own.
from .commands import output

NVIDIA_SMI = [
    "nvidia-smi",
    "--query-gpu=name,memory.total,driver_version,compute_cap",
    "--format=csv,noheader,nounits",
]
"""The command that lists the GPUs."""


UNIFIED_PART = 0.8
"""Fraction of a computer's free memory that all its ranks on a GPU that shares it may use. A full
memory freezes the machine, where another GPU raises an out-of-memory error."""

PYTHON = 420 << 20
"""Resident bytes after importing torch and the other libraries; in the computer's memory only."""

CUDA = 768 << 20
"""Bytes of CUDA's context and NCCL's buffers, which torch does not count."""


def room_mib(total: int, reserved: int | None, used: int | None, ours: int = 0) -> int:
    """Return the MiB of a card that a run can have, of its `total`.

    The driver has `reserved` some for itself. Of the `used` memory, `ours` is Hearth's own; other
    programs, such as a desktop, hold the rest. A figure that the driver does not report is None.
    """
    return max(total - (reserved or 0) - max((used or 0) - ours, 0), 0)


def unified_share(free: float, ranks: int) -> float:
    """Return the bytes that each of `ranks` may use of a memory that a GPU shares, `free` now."""
    return UNIFIED_PART * free / ranks


def gpus() -> list[dict[str, Any]]:
    """Return every GPU that the driver knows, as `gpus_in` does."""
    return gpus_in(output(*NVIDIA_SMI))


def gpus_in(text: str) -> list[dict[str, Any]]:
    """Return `name`, `memory_mib`, `driver` and `capability` of the GPUs in `NVIDIA_SMI`'s output.

    The memory is None if the GPU shares the computer's: then the driver says `[N/A]`.
    """
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 4:
            name, memory, driver, capability = fields
            found.append(
                {
                    "name": name,
                    "memory_mib": int(memory) if memory.isdecimal() else None,
                    "driver": driver,
                    "capability": capability,
                }
            )
    return found


def supports(arch: Sequence[str], capability: str) -> bool:
    """Return whether a torch built for `arch` (`sm_86` …) runs on a GPU of a `capability` (`8.9`).

    Binary code runs on later minors of its major version, with a suffix `a` on its own version
    only. PTX (`compute_90`) is compiled for anything later. Source: CUDA C++ Programming Guide,
    "Compute Capability" and "Family-Specific Features".
    """
    major, minor = map(int, capability.split("."))
    for built in arch:
        if not (found := re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", built)):
            continue
        kind, variant, version = found[1], found[4], (int(found[2]), int(found[3]))
        later = version <= (major, minor)
        if variant == "a":
            fits = version == (major, minor)
        else:
            fits = later and (version[0] == major or (kind == "compute" and not variant))
        if fits:
            return True
    return False


def unsupported_gpus(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a node's GPUs that its torch has no code for, as far as both are known."""
    return [
        gpu
        for gpu in facts["gpus"]
        if facts["arch"]
        and gpu["capability"][:1].isdecimal()
        and not supports(facts["arch"], gpu["capability"])
    ]


def short_gpu(gpus: Sequence[Mapping[str, Any]]) -> str:
    """Return the short names of a node's GPUs, such as `2× RTX 3090`, or "" without GPUs."""
    names = Counter(
        gpu["name"].removeprefix("NVIDIA ").removeprefix("GeForce ").removesuffix(" GPU")
        for gpu in gpus
    )
    return ", ".join(f"{count}× {name}" if count > 1 else name for name, count in names.items())


NVIDIA = "10de"
"""NVIDIA's PCI vendor id."""

FLOOR = 580
"""Oldest driver branch that torch's CUDA 13 supports."""

THEN_AGAIN = "then run `hearth provision` again"
"""Ending of findings that tell a person what to do."""

SIGNING_KEYS = {
    "debian": "/var/lib/dkms/mok.pub",
    "ubuntu": "/var/lib/shim-signed/mok/MOK.der",
}
"""The key that signs modules built on the machine, by system."""

_MAKE_KEY = {
    "debian": """\
  sudo apt-get install dkms mokutil openssl
  cd /var/lib/dkms && sudo test -e mok.pub || sudo openssl req -new -x509 -newkey rsa:2048 \\
    -nodes -days 36500 -subj "/CN=$(hostname) DKMS/" -keyout mok.key -outform DER -out mok.pub""",
    "ubuntu": """\
  sudo apt-get install shim-signed mokutil
  sudo test -e /var/lib/shim-signed/mok/MOK.der || sudo update-secureboot-policy --new-key""",
}


def enrol_command(system: str) -> str:
    """Return the command that enrols the key on a system, by the id of os-release."""
    if system == "ubuntu":
        return "sudo update-secureboot-policy --enroll-key"
    return f"sudo mokutil --import {SIGNING_KEYS['debian']}"


def how_to_enrol(system: str) -> str:
    """Return the steps that enrol the key for modules built on a machine of this system."""
    return f"""\
Secure Boot is on, and modules that are built on this machine (DKMS) load only once you have
enrolled its signing key, which a person must do at its own screen and keyboard:
{_MAKE_KEY.get(system, _MAKE_KEY["debian"])}
  {enrol_command(system):<45} # choose a password that you need once
  sudo systemctl reboot                         # then at the screen: Enroll MOK, the password
Or switch Secure Boot off in the firmware; {THEN_AGAIN}"""


def restart_warning(look: Mapping[str, Any]) -> str:
    """Return warnings, to follow the note on a driver that works, of what the next restart loses.

    `look` are the facts of Ansible's module `hearth_driver`.
    """
    lines = []
    if look["lockout"]:
        lines.append(f"{look['lockout']}: {look['lockout_remedy']}")
    if look["next_boot"]:
        lines.append(f"{look['next_boot']}, so the next restart loses the GPU: {look['remedy']}")
    return "".join(f"\nWARNING: {line}" for line in lines)


def not_restarted(look: Mapping[str, Any]) -> str:
    """Return why the machine must not be restarted yet, and what to do before."""
    return f"it must not be restarted yet: {look['lockout']}. First: {look['lockout_remedy']}"


def usable_gpus(memory: Mapping[str, Any]) -> int:
    """Return the number of GPUs that the driver lists and torch is built for.

    `memory` are the facts of a node from the Ansible module `hearth_inspect`.
    """
    return len(memory["gpus"]) if memory["cuda"] else 0


def ranks_of(memory: Mapping[str, Any], nproc: int) -> int:
    """Return a node's number of ranks: the inventory's `nproc`, or one per usable GPU for 0."""
    return nproc or max(1, usable_gpus(memory))


def major(version: str) -> int:
    """Return the branch of a version such as 580.126.09; 0 if there is none."""
    found = re.match(r"\d+", version)
    return int(found[0]) if found else 0
