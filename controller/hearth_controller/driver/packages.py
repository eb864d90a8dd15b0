"""The plan of a machine, with its driver packages: Canonical's on Ubuntu, NVIDIA's on Debian. Pure.

Names: Ubuntu's from packages.ubuntu.com (sources nvidia-graphics-drivers-580 and
linux-restricted-modules); those of NVIDIA's repository from its Driver Installation Guide, sections
"Debian", "Compute-only" and "Version locking".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hearth.base.nvidia import FLOOR, NVIDIA, THEN_AGAIN, how_to_enrol
from hearth_controller.driver.cards import Card, card

# Kernel driver of a card that is passed through to a virtual machine.
HANDED_ON = "vfio-pci"


@dataclass(frozen=True)
class GpuMachine:
    """Facts about a machine: the result of inspecting it, and its options."""

    name: str
    look: Mapping[str, Any]
    install: bool = True
    branch: str = "auto"
    repository: str = "distribution"
    url: str = ""
    toolkit: bool = False

    @property
    def cards(self) -> list[Card]:
        """Its NVIDIA cards, except those passed through to a virtual machine."""
        return [
            card(found["device"])
            for found in self.look["cards"]
            if found["vendor"] == NVIDIA and found["driver"] != HANDED_ON
        ]

    @property
    def release(self) -> str:
        """NVIDIA's name for its system, such as debian12 or ubuntu2404."""
        return self.look["system"]["id"] + self.look["system"]["version"].replace(".", "")


@dataclass
class DriverPlan:
    """Plan for a machine.

    `action` is `none` (no NVIDIA card, or not wanted), `keep` (it works), `install`, `load` (the
    installed driver only has to be loaded, or needs a restart) or `refuse`. `first` is installed
    before `packages`, `extra` only where apt can. `kind` names the module packages that Ubuntu has
    for each kernel, such as 580-open. A finding stops the machine; `note` is one line for the
    screen. `toolkit` is the package of the CUDA toolkit ('' for none), `toolkit_source` the
    repository that it needs, if any.
    """

    action: str
    note: str = ""
    findings: list[str] = field(default_factory=list)
    open_modules: bool = True
    branch: int = 0
    first: list[str] = field(default_factory=list)
    kind: str = ""
    packages: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    source: dict[str, str] = field(default_factory=dict)
    toolkit: str = ""
    toolkit_source: dict[str, str] = field(default_factory=dict)


# NVIDIA's repository for a release has no older branch.
FIRST_BRANCH = {"debian13": 590}

_NVIDIA_SITE = "https://developer.download.nvidia.com/compute/cuda/repos"
# Name and fingerprint of the key that signs a release's repository.
_KEYS = {
    "debian12": ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
    "debian13": ("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200"),
    "ubuntu2204": ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
    "ubuntu2404": ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
}
# The toolkit of torch's own CUDA, which every driver from 580 on runs.
_TOOLKIT = "cuda-toolkit-13-0"
_NVIDIA_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}


# -- Ubuntu ---------------------------------------------------------------------------------------


def from_canonical(machine: GpuMachine, plan: DriverPlan) -> None:
    """Fill in the driver of Canonical's packages, with the kind of its prebuilt, signed modules.

    The machine itself chooses the module packages for its kernels, since only its apt knows them.
    """
    if not machine.look["images"]:
        plan.findings.append(
            "no installed kernel package was found (linux-image-…), so it is unknown which "
            f"kernel modules are needed: sudo apt-get install linux-image-generic, {THEN_AGAIN}"
        )
        return
    plan.kind = f"{plan.branch}-open" if plan.open_modules else str(plan.branch)
    if machine.look["desktop"]:
        plan.packages = [f"nvidia-driver-{plan.kind}"]
    else:
        plan.packages = [f"nvidia-headless-no-dkms-{plan.kind}", f"nvidia-utils-{plan.branch}"]


# -- Debian ---------------------------------------------------------------------------------------


def from_nvidia(machine: GpuMachine, plan: DriverPlan) -> None:
    """Fill in the packages of NVIDIA's repository, whose modules DKMS builds on the machine."""
    look, release = machine.look, machine.release
    if machine.repository != "nvidia":
        plan.findings.append(
            f"{look['system']['name']} has no driver {FLOOR} or newer of its own, which torch's "
            "CUDA 13 needs. Set driver_repo: nvidia in the inventory to use NVIDIA's own apt "
            "repository, or install such a driver by hand"
        )
        return
    if plan.branch < FIRST_BRANCH.get(release, FLOOR):
        plan.findings.append(
            f"NVIDIA's repository for {look['system']['name']} begins with branch "
            f"{FIRST_BRANCH[release]}: set driver_branch: auto or {FIRST_BRANCH[release]}"
        )
    if look["secure_boot"] and not look["signing_key_enrolled"]:
        plan.findings.append(how_to_enrol(look["system"]["id"]))
    source = _source(machine)
    if not source:
        plan.findings.append(
            f"NVIDIA's repository for {release} on {look['architecture']} is not known to Hearth: "
            f"install a driver {FLOOR} or newer by hand, and set driver_install: off"
        )
    if plan.findings:
        return
    plan.source = source
    plan.first = [f"nvidia-driver-pinning-{plan.branch}"]
    if look["desktop"]:
        space = ["nvidia-open" if plan.open_modules else "cuda-drivers"]
    else:
        modules = "nvidia-kernel-open-dkms" if plan.open_modules else "nvidia-kernel-dkms"
        space = ["nvidia-driver-cuda", modules]
    plan.packages = [*debian_headers(look["images"]), *space]
    running = f"linux-headers-{look['kernel']}"
    if f"linux-image-{look['kernel']}" in look["images"]:
        plan.extra = [running]


def debian_headers(images: list[str]) -> list[str]:
    """Return the header meta-packages of the installed kernels, or else one package per kernel.

    `linux-image-amd64` and `linux-image-cloud-amd64` are meta; `linux-image-6.1.0-40-amd64` is one.
    """
    names = [image.removeprefix("linux-image-") for image in images]
    following = [name for name in names if not name[:1].isdigit()]
    return [f"linux-headers-{name}" for name in sorted(following or names)]


# -- the CUDA toolkit -----------------------------------------------------------------------------


def add_toolkit(machine: GpuMachine, plan: DriverPlan) -> None:
    """Add the CUDA toolkit to the plan of a machine with an NVIDIA GPU."""
    if machine.repository != "nvidia":
        plan.toolkit = "nvidia-cuda-toolkit"
        return
    source = _source(machine)
    if not source:
        plan.findings.append(
            f"cuda_toolkit: NVIDIA's repository for {machine.release} on "
            f"{machine.look['architecture']} is not known to Hearth: set driver_repo: distribution "
            "for the toolkit of the system"
        )
        return
    # Ubuntu's driver stays Canonical's: of two repositories the one below 500 comes second.
    second = machine.look["system"]["id"] == "ubuntu"
    plan.toolkit, plan.toolkit_source = _TOOLKIT, source | {"priority": "100" if second else ""}


def _source(machine: GpuMachine) -> dict[str, str]:
    """Return the repository's URL, and its key's URL and fingerprint; {} if unknown."""
    if machine.url:  # of the lab, unsigned
        return {"url": machine.url, "key_url": "", "fingerprint": ""}
    file, fingerprint = _KEYS.get(machine.release, ("", ""))
    place = _NVIDIA_ARCHITECTURES.get(machine.look["architecture"], "")
    if not file or not place:
        return {}
    url = f"{_NVIDIA_SITE}/{machine.release}/{place}/"
    return {"url": url, "key_url": f"{url}{file}", "fingerprint": fingerprint}
