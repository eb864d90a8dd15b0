"""Inspect a machine for the driver decision, and judge the driver that it has.

Does it work, does a restart help, does the next one lose the GPU? Read-only. `root` is / except in
tests, which build a tree of their own.
"""

from __future__ import annotations

import glob
import os
import platform
import re
import shutil
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.hearth.base.commands import output, run
from ansible.module_utils.hearth.base.nvidia import FLOOR, NVIDIA, SIGNING_KEYS, major
from ansible.module_utils.hearth.base.systems import release_in
from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.driver.apt import Apt
from ansible.module_utils.hearth_node.driver.boot import lockout

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


_EFI_SECURE_BOOT = (
    "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"  # UEFI 2.10, 3.3
)
# Canonical's key is built into its kernels, so mokutil does not list it.
_CANONICAL = "Canonical Ltd. Kernel Module Signing"
# With the server packages a desktop would lose its OpenGL.
_DESKTOP = re.compile(
    r"(nvidia-driver(-\d+.*)?|libnvidia-gl-.*|xserver-xorg-core|xwayland|gdm3|sddm|lightdm)"
)
_OURS = re.compile(r"(lib)?nvidia-|linux-(image|modules-nvidia)-|libcuda1|cuda-(drivers|toolkit-)")
_LIBRARY = "libnvidia-ml.so.1"
_LIBRARY_FOLDERS = ("usr/lib/*-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib")


def nvidia_smi(*options: str) -> tuple[str, str]:
    """Return the output of nvidia-smi, and the reason in words if it gives none."""
    if shutil.which("nvidia-smi") is None:
        return "", "no nvidia-smi"
    done = run("nvidia-smi", *options)
    if done.returncode == 0:
        return done.stdout, ""
    said = (done.stdout.strip() or done.stderr.strip()).partition("\n")[0]
    return "", f"nvidia-smi fails: {said or 'it does not say why'}"


def _read(path: str) -> str:
    return text_of(path).strip()


def cards(root: str = "/") -> list[dict[str, str]]:
    """Return the display controllers on the PCI bus, of any vendor, in slot order.

    Classes 0x0300 (VGA) and 0x0302 (3D: a laptop's second card, a data centre's) of PCI.
    """
    found = []
    for folder in sorted(glob.glob(os.path.join(root, "sys/bus/pci/devices/*"))):
        if _read(f"{folder}/class")[:6] not in ("0x0300", "0x0302"):
            continue
        driver = f"{folder}/driver"
        found.append(
            {
                "vendor": _read(f"{folder}/vendor").removeprefix("0x"),
                "device": _read(f"{folder}/device").removeprefix("0x"),
                "driver": os.path.basename(os.readlink(driver)) if os.path.islink(driver) else "",
            }
        )
    return found


def system(root: str = "/") -> dict[str, str]:
    """Return `id`, `version` and `name` from os-release."""
    return release_in(_read(f"{root}/etc/os-release"))


def loaded(root: str = "/") -> tuple[str, str]:
    """Return the version of NVIDIA's loaded kernel module and its kind, or empty strings."""
    text = _read(os.path.join(root, "proc/driver/nvidia/version"))
    version = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", text)
    if not version:
        return "", ""
    return version[1], "open" if "Open Kernel Module" in text else "proprietary"


def library(root: str = "/") -> tuple[str, str]:
    """Return the version of the user-space driver and the path that shows it, or empty strings.

    The library that all programs load to reach the module has the version in its name, whichever
    way it was installed.
    """
    for folder in _LIBRARY_FOLDERS:
        for link in glob.glob(os.path.join(root, folder, _LIBRARY)):
            version = re.search(r"\.so\.(\d+\.[\d.]+)$", os.path.realpath(link))
            if version:
                return version[1], link
    return "", ""


def secure_boot(root: str = "/") -> bool:
    """Return whether Secure Boot is on: the fifth byte of its EFI variable is 1."""
    try:
        with open(os.path.join(root, _EFI_SECURE_BOOT), "rb") as file:
            return file.read()[4:5] == b"\x01"
    except OSError:
        return False


def module_versions(root: str = "/") -> dict[str, str]:
    """Return the version of the installed NVIDIA module by kernel; '' if modinfo does not say."""
    found = {}
    top = os.path.join(root, "lib/modules")
    for folder, _, files in os.walk(top):
        for name in files:
            if re.match(r"nvidia\.ko(\.|$)", name):
                kernel = os.path.relpath(folder, top).split(os.sep)[0]
                path = os.path.join(folder, name)
                found[kernel] = output("modinfo", "--field", "version", path).strip()
    return found


def next_kernel(root: str = "/") -> str:
    """Return the newest kernel in /boot, which a restart takes; '' if there is none."""
    names = glob.glob(os.path.join(root, "boot/vmlinuz-[0-9]*"))
    kernels = [os.path.basename(name).removeprefix("vmlinuz-") for name in names]
    return max((each for each in kernels if not each.endswith(".old")), key=release_key, default="")


def prime_off(root: str = "/") -> bool:
    """Return whether `prime-select intel` takes the NVIDIA card off the bus at every boot."""
    return _read(os.path.join(root, "etc/prime-discrete")) == "off"


def signer_enrolled(signer: str, root: str = "/") -> bool:
    """Return whether the kernel trusts the module's `signer`.

    Of a loaded module the kernel itself says so: without a trusted signature it is tainted with E.
    """
    if taint := _read(os.path.join(root, "sys/module/nvidia/taint")):
        return "E" not in taint
    if not signer:
        return False
    if signer == _CANONICAL:
        return True
    enrolled = output("mokutil", "--list-enrolled")
    return bool(re.search(rf"CN ?= ?{re.escape(signer)}\s*$", enrolled, re.MULTILINE))


def signing_key_enrolled(system: str) -> bool:
    """Return whether the firmware trusts the key that signs modules built on this machine."""
    done = run("mokutil", "--test-key", SIGNING_KEYS.get(system, SIGNING_KEYS["debian"]))
    return "already enrolled" in done.stdout + done.stderr


def _owner(path: str) -> str:
    """Return the package that owns a file, or ''."""
    for each in (path, path.replace("/usr/lib/", "/lib/", 1), os.path.realpath(path)):
        if text := output("dpkg-query", "--search", each):
            return text.split(":")[0]
    return ""


def inspect_driver() -> dict[str, Any]:
    """Return the facts about this machine that the driver decision needs (on the controller)."""
    apt = Apt()
    packages = apt.installed
    version, path = library()
    text, _ = nvidia_smi("--query-gpu=name", "--format=csv,noheader")
    answer: dict[str, Any] = {
        "cards": cards(),
        "system": system(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "images": [name for name in packages if name.startswith("linux-image-")],
        "desktop": any(_DESKTOP.fullmatch(name) for name in packages),
        "installed": {name: v for name, v in packages.items() if _OURS.match(name)},
        "library": version,
        "library_package": _owner(path) if path else "",
        "answers": bool(text.strip()),
        "secure_boot": secure_boot(),
        "signing_key_enrolled": False,
        "signer": "",
        "signer_enrolled": False,
        "module_versions": module_versions(),
        "next_kernel": next_kernel(),
        "prime_off": prime_off(),
    }
    answer["loaded"], answer["modules"] = loaded()
    if answer["secure_boot"]:
        answer["signing_key_enrolled"] = signing_key_enrolled(answer["system"]["id"])
        answer["signer"] = output("modinfo", "--field", "signer", "nvidia").strip()
        answer["signer_enrolled"] = signer_enrolled(answer["signer"])
    trouble = next_boot(answer)
    lost = lockout(answer["next_kernel"], answer["kernel"], apt)
    return answer | {
        "lockout": lost.reason,
        "lockout_remedy": lost.remedy,
        "works": works(answer),
        "restart": restart_reason(answer),
        "next_boot": trouble,
        "remedy": remedy(answer) if trouble else "",
    }
