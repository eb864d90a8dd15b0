"""Judge the installed driver: does it work, does a restart help, does the next one lose the GPU?

Pure: every function takes the facts of `hearth_node.driver.inspect.look`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.hearth.base.nvidia import FLOOR, NVIDIA, major

# Packages that build the module on the machine, those that bring it built, and user space.
_DKMS = re.compile(r"nvidia-(kernel-(open-)?)?dkms")
_PREBUILT = re.compile(r"linux-modules-nvidia-\d+(-server)?(-open)?(?=-)")
_SPACE = re.compile(r"nvidia-(driver|headless-no-dkms|utils)-\d+(-server)?(-open)?")


def release_key(release: str) -> list[tuple[int, str]]:
    """Return the sort key of a kernel release, so that 6.11.0-9 comes after 6.8.0-60."""
    parts = re.split(r"(\d+)", release)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def works(look: Mapping[str, Any]) -> bool:
    """Return whether the driver is new enough, loaded, of one version, and answers."""
    return bool(
        look["answers"] and look["loaded"] == look["library"] and major(look["loaded"]) >= FLOOR
    )


def next_boot(look: Mapping[str, Any]) -> str:
    """Return the reason why the installed driver will not work after a restart, or ''.

    A restart takes the newest kernel in /boot; without one there, nothing is known.
    """
    kernel, library, modules = look["next_kernel"], look["library"], look["module_versions"]
    if not kernel or major(library) < FLOOR:
        return ""
    if kernel not in modules:
        return f"kernel {kernel}, the newest in /boot, has no NVIDIA module"
    if modules[kernel] and modules[kernel] != library:
        return (
            f"the module of kernel {kernel}, the newest in /boot, is {modules[kernel]} and the "
            f"installed driver {library}, which do not work together"
        )
    return ""


def restart_reason(look: Mapping[str, Any]) -> str:
    """Return the reason why the installed driver needs a restart, or '' if one does not help."""
    if major(look["library"]) < FLOOR or next_boot(look):
        return ""
    if look["loaded"] and look["loaded"] != look["library"]:
        return (
            f"the loaded module is {look['loaded']} and the installed driver {look['library']}, "
            "which do not work together"
        )
    if not look["loaded"] and any(
        found["vendor"] == NVIDIA and found["driver"] == "nouveau" for found in look["cards"]
    ):
        return "nouveau holds the card until the machine is restarted"
    modules = look["module_versions"]
    if modules and not look["loaded"] and look["kernel"] not in modules:
        newest = max(modules, key=release_key)
        return f"its module is built for kernel {newest}, and {look['kernel']} runs"
    return ""


def remedy(look: Mapping[str, Any]) -> str:
    """Return the command that gives the kernel of `next_boot` a module of the right version."""
    kernel, installed = look["next_kernel"], look["installed"]
    prebuilt = sorted({found[0] for name in installed if (found := _PREBUILT.match(name))})
    if prebuilt:
        # In one call, since each of the two may need the other's newer version.
        space = [name for name in installed if _SPACE.fullmatch(name)]
        modules = [f"{name}-{kernel}" for name in prebuilt]
        install = f"sudo apt-get update; sudo apt-get install {' '.join([*modules, *space])}"
    elif any(map(_DKMS.match, installed)):
        headers = f"sudo apt-get install linux-headers-{kernel}"
        install = f"{headers}; sudo dkms autoinstall --force -k {kernel}"
    else:
        install = f"install driver {look['library']} again, for kernel {kernel}"
    whole = [each for each, its in look["module_versions"].items() if its in ("", look["library"])]
    if not whole:
        return install
    return (
        f"{install}; if that does not help, choose kernel {max(whole, key=release_key)} under "
        "'Advanced options' of the boot menu"
    )
