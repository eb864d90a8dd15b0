"""Whether a kernel has drivers for the network cards and the root disk of this machine.

A kernel without them starts a machine that no one reaches any more. Ubuntu keeps most network
drivers in a package of their own, and a driver that was built for the running kernel alone is not
in the next one. Read-only. `root` is / except in tests, which build a tree of their own.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.driver.apt import Apt

_DISK = "the root disk"
_FILE = re.compile(r"(?:.*/)?([^/]+)\.ko(?:\.\w+)?")


@dataclass(frozen=True)
class NeededModule:
    """A module that the machine needs to be reached, and its use, such as `enp5s0`.

    Another module that answers to one of the `aliases` of the device does as well.
    """

    purpose: str
    module: str
    aliases: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.purpose} ({self.module})"


@dataclass(frozen=True)
class Modules:
    """The modules of a kernel: their names, and their aliases as patterns."""

    names: frozenset[str] = frozenset()
    aliases: frozenset[str] = field(default=frozenset(), repr=False)

    def have(self, need: NeededModule) -> bool:
        """Return whether one of them serves the need."""
        return _plain(need.module) in self.names or any(
            fnmatchcase(alias, pattern) for pattern in self.aliases for alias in need.aliases
        )


def _plain(name: str) -> str:
    """Return a module's name as the kernel spells it."""
    return name.replace("-", "_")


def modules_of(kernel: str, root: str = "/") -> Modules:
    """Return the modules of an installed kernel, those built into it included."""
    folder = os.path.join(root, "lib/modules", kernel)
    names = {
        _plain(found[1])
        for file in ("modules.dep", "modules.builtin")
        for line in text_of(f"{folder}/{file}").splitlines()
        if (found := _FILE.fullmatch(line.partition(":")[0]))
    }
    aliases = {
        line.split()[1]
        for line in text_of(f"{folder}/modules.alias").splitlines()
        if line.startswith("alias ")
    }
    built_in = text_of(f"{folder}/modules.builtin.modinfo").split("\0")
    aliases |= {word.partition(".alias=")[2] for word in built_in if ".alias=" in word}
    return Modules(frozenset(names), frozenset(aliases))


def needs(root: str = "/") -> list[NeededModule]:
    """Return the loaded modules that drive the machine's network cards and root disk.

    What the running kernel has built in is left out: its distribution's others have it, too.
    """
    return list(dict.fromkeys([*_of_network_cards(root), *_of_root(root)]))


def _of_network_cards(root: str) -> Iterator[NeededModule]:
    for card in sorted(glob.glob(os.path.join(root, "sys/class/net/*"))):
        if os.path.exists(f"{card}/device"):
            yield from _of_device(os.path.realpath(f"{card}/device"), os.path.basename(card))


def _of_device(path: str, purpose: str) -> Iterator[NeededModule]:
    """Yield the modules of a device and of those that it hangs on, such as a USB controller."""
    while path != os.path.dirname(path):
        module = os.path.realpath(f"{path}/driver/module")
        if os.path.exists(f"{module}/initstate"):  # one that is built in has none
            alias = text_of(f"{path}/modalias").strip()
            yield NeededModule(purpose, os.path.basename(module), (alias,) if alias else ())
        path = os.path.dirname(path)


def _of_root(root: str) -> Iterator[NeededModule]:
    """Yield the modules of the file system and of the disk that / is on."""
    for line in text_of(os.path.join(root, "proc/self/mountinfo")).splitlines():
        place, _, source = line.partition(" - ")
        if place.split()[4:5] == ["/"]:
            kind, device = source.split()[:2]
            yield from _if_loaded(kind, root)
            yield from _of_disk(os.path.join(root, device.lstrip("/")), root)


def _if_loaded(module: str, root: str) -> Iterator[NeededModule]:
    if os.path.exists(os.path.join(root, "sys/module", _plain(module), "initstate")):
        yield NeededModule(_DISK, module)


def _of_disk(device: str, root: str) -> Iterator[NeededModule]:
    """Yield the modules of a disk, and of those that a volume is made of (LVM, LUKS, RAID)."""
    path = os.path.realpath(
        os.path.join(root, "sys/class/block", os.path.basename(os.path.realpath(device)))
    )
    if text_of(f"{path}/dm/uuid").startswith("CRYPT-"):
        yield from _if_loaded("dm-crypt", root)
    level = text_of(f"{path}/md/level").strip()
    yield from _if_loaded("raid456" if level in ("raid4", "raid5", "raid6") else level, root)
    for below in sorted(glob.glob(f"{path}/slaves/*")):
        yield from _of_disk(below, root)
    yield from _of_device(path, _DISK)
    # A disk that several controllers lead to hangs on none of them.
    for controller in sorted(
        glob.glob(f"{path}/../nvme*/device") + glob.glob(f"{path}/../../nvme*/device")
    ):
        yield from _of_device(os.path.realpath(controller), _DISK)


@dataclass(frozen=True)
class Lockout:
    """The reason why a restart loses the machine, and the command that prevents it, or ''."""

    reason: str = ""
    remedy: str = ""


def lockout(kernel: str, running: str, apt: Apt, root: str = "/") -> Lockout:
    """Return the lockout by `kernel`, which a restart takes, if it lacks drivers that are in use.

    Without a kernel in /boot ('') nothing is known.
    """
    if not kernel:
        return Lockout()
    modules = modules_of(kernel, root)
    missing = [need for need in needs(root) if not modules.have(need)]
    if missing:
        what = f"no driver for {', '.join(map(str, missing))}"
        remedy = _packages_with(kernel, missing, apt) or _building(kernel, running, missing, root)
    elif _has_disk_image(running, root) and not _has_disk_image(kernel, root):
        what, remedy = "no initial RAM disk", f"sudo update-initramfs -c -k {kernel}"
    else:
        return Lockout()
    off = any(need.purpose == _DISK for need in missing) or not missing
    fate = "does not start" if off else "is off the network"
    reason = f"kernel {kernel}, which a restart takes, has {what}, so that the machine {fate}"
    return Lockout(reason, remedy or f"sudo apt-get remove linux-image-{kernel}, for an older one")


def _has_disk_image(kernel: str, root: str) -> bool:
    return os.path.exists(os.path.join(root, f"boot/initrd.img-{kernel}"))


def _packages_with(kernel: str, missing: Sequence[NeededModule], apt: Apt) -> str:
    """Return the command that installs the rest of a kernel's modules, or ''."""
    names = [f"linux-modules-extra-{kernel}"]
    if any(need.module == "zfs" for need in missing):
        names.append(f"linux-main-modules-zfs-{kernel}")
    lacking = [name for name in names if name not in apt.installed and apt.has(name)]
    return f"sudo apt-get install {' '.join(lacking)}" if lacking else ""


def _building(kernel: str, running: str, missing: Sequence[NeededModule], root: str) -> str:
    """Return the command that builds the modules that DKMS built for the running kernel, or ''."""
    folder = os.path.join(root, "lib/modules", running, "updates")
    built = {
        _plain(found[1])
        for _, _, names in os.walk(folder)
        for name in names
        if (found := _FILE.fullmatch(name))
    }
    if not built.intersection(_plain(need.module) for need in missing):
        return ""
    return f"sudo apt-get install linux-headers-{kernel}; sudo dkms autoinstall -k {kernel}"
