"""Which driver each machine of a cluster gets, and why. Pure: it knows only what it is told.

Package names: Ubuntu's from packages.ubuntu.com (sources nvidia-graphics-drivers-580 and
linux-restricted-modules); those of NVIDIA's repository from its Driver Installation Guide, sections
"Debian", "Compute-only" and "Version locking".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.hearth_driver_cards import NVIDIA, OTHER_MAKERS, Card, card

# torch's CUDA 13 needs it.
FLOOR = 580
# NVIDIA's repository for a release has no older branch.
_FIRST_BRANCH = {"debian13": 590}

_NVIDIA_SITE = "https://developer.download.nvidia.com/compute/cuda/repos"
# Name and fingerprint of the key that signs a release's repository.
_KEYS = {
    "debian12": ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
    "debian13": ("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200"),
}
_NVIDIA_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}
_HANDED_ON = "vfio-pci"
_PROVISION = "then run provision.yml again"


@dataclass(frozen=True)
class Machine:
    """What is known of a machine: what its look says, and its options."""

    name: str
    look: Mapping[str, Any]
    install: bool = True
    branch: str = "auto"
    repository: str = "distribution"
    url: str = ""
    key: str = ""

    @property
    def cards(self) -> list[Card]:
        """Its NVIDIA cards, but for those that it hands to a virtual machine."""
        return [
            card(found["device"])
            for found in self.look["cards"]
            if found["vendor"] == NVIDIA and found["driver"] != _HANDED_ON
        ]

    @property
    def release(self) -> str:
        """What NVIDIA calls its system, such as debian12."""
        return self.look["system"]["id"] + self.look["system"]["version"].split(".")[0]


@dataclass
class Plan:
    """What is to be done on a machine.

    `action` is `none` (no NVIDIA card, or not wanted), `keep` (it works), `install`, `load` (what
    is installed only has to be loaded, or needs a restart) or `refuse`. `first` is installed before
    `packages`, and of `extra` what the archive still has. A finding stops the machine; `note` is
    one line for the screen.
    """

    action: str
    note: str = ""
    findings: list[str] = field(default_factory=list)
    open_modules: bool = True
    branch: int = 0
    first: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    source: dict[str, str] = field(default_factory=dict)


def major(version: str) -> int:
    """Return the branch of a version such as 580.126.09; 0 for none."""
    found = re.match(r"\d+", version)
    return int(found[0]) if found else 0


def works(look: Mapping[str, Any]) -> bool:
    """Return whether the machine's driver is new enough, loaded, of one version, and answers."""
    return bool(
        look["answers"] and look["loaded"] == look["library"] and major(look["loaded"]) >= FLOOR
    )


def restart_reason(look: Mapping[str, Any]) -> str:
    """Return why only a restart lets the installed driver work, or nothing."""
    if major(look["library"]) < FLOOR:
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
    others = [each for each in look.get("module_kernels", []) if each != look["kernel"]]
    if others and not look["loaded"] and look["kernel"] not in look["module_kernels"]:
        return f"its module is built for kernel {others[-1]}, and {look['kernel']} runs"
    return ""


def after_install(
    look: Mapping[str, Any], said: str, how: str, *, may_restart: bool, controller: bool
) -> str:
    """Return what a person has to do for an installed driver to work; nothing if nothing is.

    `said` is what loading the module said, `how` the command that restarts the machine;
    `may_restart` says whether it will be restarted anyway.
    """
    if works(look):
        return ""
    if reason := restart_reason(look):
        if controller:
            return (
                f"{reason}. This machine plays the playbook, so Hearth never restarts it: "
                f"sudo systemctl reboot, {_PROVISION}"
            )
        if may_restart:
            return ""
        return f"{reason}. Restart it ({how}) or set driver_reboot: true, {_PROVISION}"
    if "Key was rejected" in said:
        return _ENROL
    if look["loaded"]:
        return f"driver {look['loaded']} is loaded, but nvidia-smi does not answer: call it there"
    return (
        f"driver {look['library'] or '?'} is installed, but its module cannot be loaded "
        f"({said or 'modprobe gave no reason'}). Look at `dkms status` and `dmesg | grep -i nvrm`"
    )


def decide(machines: list[Machine]) -> dict[str, Plan]:
    """Return the plan of each machine, by name.

    All machines that need an install get one branch: the one that they ask for, or with `auto` the
    oldest that is new enough and that the repositories of all of them have. Raises ValueError for
    a branch that is none or too old, and where they ask for different ones.
    """
    wanted = _one_branch(machines)
    plans = {machine.name: _without_install(machine) for machine in machines}
    needing = [machine for machine in machines if plans[machine.name] is None]
    firsts = [_FIRST_BRANCH.get(machine.release, FLOOR) for machine in needing]
    branch = int(wanted) if wanted != "auto" else max([FLOOR, *firsts])
    return {machine.name: plans[machine.name] or _install(machine, branch) for machine in machines}


def _one_branch(machines: list[Machine]) -> str:
    """Return what all machines ask for. Raises ValueError."""
    asked = {machine.branch: machine.name for machine in machines}
    if len(asked) > 1:
        each = ", ".join(f"{name} {branch}" for branch, name in asked.items())
        raise ValueError(
            f"driver_branch is not the same on all machines ({each}): set it once, for the cluster"
        )
    wanted = next(iter(asked), "auto")
    if wanted != "auto" and not (wanted.isdigit() and int(wanted) >= FLOOR):
        raise ValueError(
            f"driver_branch: {wanted} is not possible: torch's CUDA 13 needs {FLOOR} or newer; "
            f"set it to auto, {FLOOR} or a newer branch"
        )
    return wanted


def _without_install(machine: Machine) -> Plan | None:
    """Return the plan of a machine that needs no install, or cannot have one for its cards."""
    look, cards = machine.look, machine.cards
    if not cards:
        return Plan("none", "no NVIDIA GPU, so it trains on its processor" + _unused(look))
    if not machine.install:
        return Plan("none", "its driver is left alone, as driver_install: false says")
    if not any(each.trains for each in cards):
        named = ", ".join(map(str, cards))
        return Plan(
            "refuse",
            findings=[
                f"{named}: torch's CUDA 13 build has no code for cards older than Turing "
                "(compute capability below 7.5), so it cannot train. Take the machine out of the "
                "inventory, or set driver_install: false for it to train on its processor"
            ],
        )
    if works(look):
        kind = f" ({look['modules']} modules)" if look["modules"] else ""
        return Plan("keep", f"driver {look['loaded']}{kind} works and is left as it is")
    if look["modules"] == "proprietary" and any(each.needs_open for each in cards):
        named = ", ".join(str(each) for each in cards if each.needs_open)
        return Plan(
            "refuse",
            findings=[
                f"{named} needs NVIDIA's open kernel modules, and the proprietary ones of "
                f"{look['loaded']} are loaded: remove that driver, restart the machine, "
                f"{_PROVISION}"
            ],
        )
    if major(look["library"]) >= FLOOR and not (
        # Only Canonical's modules come in packages of their own, which may lag behind the kernel.
        look["system"]["id"] == "ubuntu" and look["library_package"] and not _stuck(look)
    ):
        return Plan("load", branch=major(look["library"]))
    if look["library"] and not look["library_package"]:
        return Plan(
            "refuse",
            findings=[
                f"driver {look['library']} is older than {FLOOR} and comes from no package, so "
                f"packages would collide with it: sudo nvidia-uninstall, {_PROVISION}"
            ],
        )
    return None


def _stuck(look: Mapping[str, Any]) -> bool:
    """Return whether no package can help: a module is loaded, or one waits for a restart."""
    return bool(look["loaded"] or restart_reason(look))


def _unused(look: Mapping[str, Any]) -> str:
    """Return what to say of the graphics of a machine that has none to train with."""
    makers = {OTHER_MAKERS.get(found["vendor"], "") for found in look["cards"]} - {""}
    said = f"; its {' and '.join(sorted(makers))} graphics are not used" if makers else ""
    if any(found["driver"] == _HANDED_ON for found in look["cards"]):
        said += f"; a card that {_HANDED_ON} holds is left to its virtual machine"
    return said


def _install(machine: Machine, branch: int) -> Plan:
    """Return the plan of a machine whose driver is missing, too old or not usable."""
    present = major(machine.look["library"])
    # A machine whose driver is new enough but is not there for its kernel keeps its branch.
    branch = present if present >= FLOOR else branch
    plan = Plan("install", branch=branch, open_modules=_open_modules(machine.cards, branch))
    system = machine.look["system"]["id"]
    if system == "ubuntu":
        _from_canonical(machine, plan)
    elif system == "debian":
        _from_nvidia(machine, plan)
    else:
        plan.findings.append(
            f"Hearth installs drivers on Ubuntu and Debian, and this is "
            f"{machine.look['system']['name']}: install NVIDIA's driver {FLOOR} or newer with what "
            f"it offers, {_PROVISION}"
        )
    if plan.findings:
        return Plan("refuse", findings=plan.findings)
    plan.note = _told(machine.cards, plan)
    return plan


def _open_modules(cards: list[Card], branch: int) -> bool:
    """Return whether the open modules suit a machine: always, unless an old card needs the others.

    Older cards beside those that train are driven too where one kind of module can do both: 580 is
    the last branch that can, and it cannot where a card needs the open modules.
    """
    old = any(each.needs_proprietary for each in cards)
    return not old or branch > FLOOR or any(each.needs_open for each in cards)


def _told(cards: list[Card], plan: Plan) -> str:
    """Return what the screen says of an install."""
    kind = "open" if plan.open_modules else "proprietary"
    good = ", ".join(str(each) for each in cards if each.trains)
    lines = [f"{good}: driver {plan.branch} with {kind} modules"]
    for each in cards:
        if not each.trains:
            driven = each.needs_proprietary and not plan.open_modules
            fate = "shows a picture, but does not train" if driven else "is not driven any more"
            lines.append(f"{each} {fate}: too old for torch")
        elif not each.known:
            lines.append(
                f"10de:{each.device} is not in Hearth's table of cards; it is taken for a new one "
                f"that open modules of branch {plan.branch} drive, which is a guess"
            )
    return "\n".join(lines)


# -- Ubuntu ---------------------------------------------------------------------------------------


def _from_canonical(machine: Machine, plan: Plan) -> None:
    """Fill in Canonical's packages: modules built and signed by it, for the installed kernels."""
    kind = f"{plan.branch}-open" if plan.open_modules else str(plan.branch)
    flavours, kernels = ubuntu_kernels(machine.look["images"])
    if not flavours and not kernels:
        plan.findings.append(
            "no installed kernel package was found (linux-image-…), so it is unknown for which "
            f"kernel modules are needed: sudo apt-get install linux-image-generic, {_PROVISION}"
        )
        return
    modules = [f"linux-modules-nvidia-{kind}-{each}" for each in [*flavours, *kernels]]
    if machine.look["desktop"]:
        space = [f"nvidia-driver-{kind}"]
    else:
        space = [f"nvidia-headless-no-dkms-{kind}", f"nvidia-utils-{plan.branch}"]
    plan.packages = [*modules, *space]
    # The flavour's package follows its newest kernel, which need not be the one that runs.
    running = f"linux-modules-nvidia-{kind}-{machine.look['kernel']}"
    if running not in modules:
        plan.extra = [running]


def ubuntu_kernels(images: list[str]) -> tuple[list[str], list[str]]:
    """Return the flavours of the installed kernel packages, and the versions without a flavour's.

    `linux-image-generic-hwe-24.04` follows the flavour generic-hwe-24.04, whose kernels are named
    `linux-image-6.14.0-37-generic`. A kernel that no installed package follows is told by version.
    """
    names = [re.sub(r"^linux-image-(unsigned-)?", "", image) for image in images]
    versions = [name for name in names if re.match(r"\d+\.\d+\.\d+-\d+-", name)]
    # The virtual flavours boot generic's kernels.
    flavours = {
        re.sub(r"^virtual", "generic", name)
        for name in names
        if name not in versions and not name[:1].isdigit()
    }
    followed = {flavour.split("-hwe-")[0].split("-")[0] for flavour in flavours}
    single = [name for name in versions if name.split("-", 2)[2].split("-")[0] not in followed]
    return sorted(flavours), sorted(single)


# -- Debian ---------------------------------------------------------------------------------------


def _from_nvidia(machine: Machine, plan: Plan) -> None:
    """Fill in the packages of NVIDIA's repository, whose modules DKMS builds on the machine."""
    look, release = machine.look, machine.release
    if machine.repository != "nvidia":
        plan.findings.append(
            f"{look['system']['name']} has no driver {FLOOR} or newer of its own, which torch's "
            "CUDA 13 needs. Set driver_repo: nvidia in the inventory to use NVIDIA's own apt "
            "repository, or install such a driver by hand"
        )
        return
    if plan.branch < _FIRST_BRANCH.get(release, FLOOR):
        plan.findings.append(
            f"NVIDIA's repository for {look['system']['name']} begins with branch "
            f"{_FIRST_BRANCH[release]}: set driver_branch: auto or {_FIRST_BRANCH[release]}"
        )
    if look["secure_boot"] and not look["signing_key_enrolled"]:
        plan.findings.append(_ENROL)
    source = _source(machine)
    if not source:
        plan.findings.append(
            f"NVIDIA's repository for {release} on {look['architecture']} is not known to Hearth: "
            "set driver_repo_url, and driver_repo_key to the fingerprint of the key that signs it"
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
    """Return the header packages that follow the installed kernels, or else those of each kernel.

    `linux-image-amd64` and `linux-image-cloud-amd64` follow; `linux-image-6.1.0-40-amd64` is one.
    """
    names = [image.removeprefix("linux-image-") for image in images]
    following = [name for name in names if not name[:1].isdigit()]
    return [f"linux-headers-{name}" for name in sorted(following or names)]


def _source(machine: Machine) -> dict[str, str]:
    """Return the repository's address, and its key's with fingerprint; nothing if unknown."""
    file, fingerprint = _KEYS.get(machine.release, ("", ""))
    place = _NVIDIA_ARCHITECTURES.get(machine.look["architecture"], "")
    url = machine.url
    if not url and file and place:
        url = f"{_NVIDIA_SITE}/{machine.release}/{place}/"
    if url.startswith("file:"):
        return {"url": url, "key_url": "", "fingerprint": ""}
    if machine.key:
        file, fingerprint = f"{machine.key[-8:]}.pub", machine.key
    if not url or not fingerprint:
        return {}
    return {"url": url, "key_url": f"{url.rstrip('/')}/{file}", "fingerprint": fingerprint}


_ENROL = f"""\
Secure Boot is on, and modules that are built on this machine (DKMS) load only once you have
enrolled its signing key, which a person must do at its own screen and keyboard:
  sudo apt-get install dkms mokutil openssl
  cd /var/lib/dkms && sudo test -e mok.pub || sudo openssl req -new -x509 -newkey rsa:2048 \\
    -nodes -days 36500 -subj "/CN=$(hostname) DKMS/" -keyout mok.key -outform DER -out mok.pub
  sudo mokutil --import /var/lib/dkms/mok.pub   # choose a password that you need once
  sudo systemctl reboot                         # then at the screen: Enroll MOK, the password
Or switch Secure Boot off in the firmware; {_PROVISION}"""
