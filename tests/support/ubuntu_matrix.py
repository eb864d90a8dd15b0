"""The cases of the driver's matrix, and the outcome of the driver stage on each.

Releases × installed kernels × installed drivers, on desktops and servers, with Secure Boot and
without.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible.module_utils.hearth_node.driver.choice import (
    PackageChoice,
    System,
    Wish,
    choose,
    releases,
)
from ansible.module_utils.hearth_node.driver.inspect import release_key

from hearth_controller.driver.decision import decide
from hearth_controller.driver.packages import DriverPlan, GpuMachine
from support.ubuntu import Archive, Computer, Driver, Kernel

KERNELS = {
    "22.04": {
        "GA, ISO": [Kernel("5.15.0-25-generic", "generic")],
        "GA, lagging": [Kernel("5.15.0-119-generic", "generic")],
        "HWE, ISO of 22.04.5": [Kernel("6.8.0-40-generic", "generic-hwe-22.04")],
        "HWE, lagging": [Kernel("6.8.0-124-generic", "generic-hwe-22.04")],
        "HWE, current": [Kernel("6.8.0-149-generic", "generic-hwe-22.04")],
        "oem-22.04d": [Kernel("6.5.0-1024-oem", "oem-22.04d")],
        "lowlatency, ISO": [Kernel("5.15.0-24-lowlatency", "lowlatency")],
        "lowlatency HWE": [Kernel("6.8.0-60-lowlatency", "lowlatency-hwe-22.04")],
        "virtual": [Kernel("5.15.0-25-generic", "virtual", whole=False)],
        "alone": [Kernel("6.8.0-40-generic")],
    },
    "24.04": {
        "GA, ISO": [Kernel("6.8.0-31-generic", "generic")],
        "GA, lagging": [Kernel("6.8.0-41-generic", "generic")],
        "GA, current": [Kernel("6.8.0-151-generic", "generic")],
        "HWE, ISO of 24.04.4": [Kernel("6.17.0-14-generic", "generic-hwe-24.04")],
        "HWE, lagging": [Kernel("6.14.0-37-generic", "generic-hwe-24.04")],
        "HWE, current": [Kernel("7.0.0-44-generic", "generic-hwe-24.04")],
        "oem-24.04b": [Kernel("6.11.0-1027-oem", "oem-24.04b")],
        "oem-6.11": [Kernel("6.11.0-1027-oem", "oem-6.11")],
        "lowlatency, ISO": [Kernel("6.8.0-31-lowlatency", "lowlatency")],
        "lowlatency HWE": [Kernel("6.11.0-1016-lowlatency", "lowlatency-hwe-24.04")],
        "lowlatency HWE, image only": [
            Kernel("6.11.0-1016-lowlatency", "lowlatency-hwe-24.04", whole=False)
        ],
        "GA and oem-6.11": [
            Kernel("6.8.0-31-generic", "generic"),
            Kernel("6.11.0-1027-oem", "oem-6.11"),
        ],
        "alone": [Kernel("6.11.0-29-generic")],
    },
    "26.04": {
        "GA, ISO": [Kernel("7.0.0-14-generic", "generic")],
        "GA, lagging": [Kernel("7.0.0-28-generic", "generic")],
        "GA, current": [Kernel("7.0.0-44-generic", "generic")],
        "HWE, ISO": [Kernel("7.0.0-14-generic", "generic-hwe-26.04")],
        "oem-26.04": [Kernel("7.0.0-1005-oem", "oem-26.04")],
    },
}
"""The installed kernels by release and name, the one that runs last."""

DRIVERS = {
    "none": None,
    "535": Driver("535.183.01"),
    "570, DKMS": Driver("570.133.07", is_open=True, built=True),
    "580": Driver("580.95.05", is_open=True),
    "580 proprietary, DKMS": Driver("580.95.05", built=True),
    ".run": None,
}
"""The installed drivers by name; `.run` is NVIDIA's installer, which leaves no package."""

RUN = "535.183.01"
"""The version that `.run` installed."""

DESKTOP = frozenset({"ubuntu-desktop", "gnome-shell", "gdm3", "xserver-xorg-core"})
"""Packages that make a desktop."""


@dataclass(frozen=True)
class Case:
    """A machine: its release, its packages, and whether Secure Boot is on."""

    release: str
    kernels: str
    driver: str
    kind: str
    secure_boot: bool

    def __str__(self) -> str:
        boot = "Secure Boot" if self.secure_boot else "no Secure Boot"
        return f"{self.release}, {self.kernels}, {self.driver}, {self.kind}, {boot}"

    @property
    def installed(self) -> list[Kernel]:
        """The kernels that are installed."""
        return KERNELS[self.release][self.kernels]

    def computer(self, archive: Archive, folder: Path) -> Computer:
        """Return the machine; one with current kernels has all its other packages current, too."""
        return Computer(
            archive,
            folder,
            self.kind,
            self.installed,
            DRIVERS[self.driver],
            updated="current" in self.kernels,
        )


def cases() -> Iterator[Case]:
    """Yield the cases: each kernel with each driver, the rest in turn.

    Prebuilt modules come with the package of a flavour, which a kernel alone does not have.
    """
    for row, (release, kernels) in enumerate(
        (release, kernels) for release, its in KERNELS.items() for kernels in its
    ):
        for column, (name, driver) in enumerate(DRIVERS.items()):
            if driver and not driver.built and not KERNELS[release][kernels][0].flavour:
                continue
            kind = ("desktop", "server")[(row + column) % 2]
            yield Case(release, kernels, name, kind, secure_boot=(row // 2 + column) % 2 == 0)


@dataclass(frozen=True)
class Outcome:
    """The stage's decision for a machine, and the packages that are installed afterwards."""

    plan: DriverPlan
    choice: PackageChoice = field(default_factory=PackageChoice)
    packages: frozenset[str] = frozenset()

    @property
    def kernel(self) -> str:
        """The kernel that a restart takes."""
        return max(releases(self.packages), key=release_key)


def inspect_case(case: Case, computer: Computer) -> dict[str, Any]:
    """Return the facts of the machine as `hearth_driver` sees them: the driver does not work."""
    driver = DRIVERS[case.driver]
    library = driver.version if driver else RUN if case.driver == ".run" else ""
    running = case.installed[-1].release
    return {
        "cards": [{"vendor": "10de", "device": "2c05", "driver": ""}],
        "system": {"id": "ubuntu", "version": case.release, "name": f"Ubuntu {case.release}"},
        "architecture": "x86_64",
        "kernel": running,
        "next_kernel": max((each.release for each in case.installed), key=release_key),
        "images": [name for name in computer.apt.installed if name.startswith("linux-image-")],
        "desktop": case.kind == "desktop",
        "loaded": "",
        "modules": "",
        "library": library,
        "library_package": f"libnvidia-compute-{driver.branch}" if driver else "",
        "answers": False,
        "works": False,
        "restart": "",
        "next_boot": "",
        "lockout": "",
        "prime_off": False,
        "secure_boot": case.secure_boot,
        "signing_key_enrolled": False,
    }


def play(case: Case, computer: Computer) -> Outcome:
    """Return the outcome of the driver stage on the machine of a case."""
    facts = inspect_case(case, computer)
    plan = decide([GpuMachine("tower", facts)])["tower"]
    if plan.action != "install":
        return Outcome(plan, packages=frozenset(computer.apt.installed))
    system = System(
        facts["kernel"], facts["next_kernel"], case.release, loads_built=not case.secure_boot
    )
    wish = Wish(tuple(plan.packages), plan.kind, tuple(plan.extra))
    choice = choose(computer.apt, wish, system)
    done = computer.apt.simulate(tuple(choice.words))
    return Outcome(plan, choice, computer.apt.after(done))
