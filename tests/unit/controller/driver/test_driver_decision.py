"""Which driver a machine gets: the table of cards, and the decision over whole clusters."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.hearth_node.driver.apt import Simulation
from ansible.module_utils.hearth_node.driver.inspect import (
    next_boot,
    remedy,
    restart_reason,
    works,
)
from support.facts import assert_names, refuses
from support.modules import call
from support.plugins import load

from hearth_controller.driver.cards import card
from hearth_controller.driver.decision import decide, shown
from hearth_controller.driver.packages import GpuMachine, debian_headers

driver = load("modules", "hearth_driver")
after_install = driver.after_install

# Real ids (pci.ids; NVIDIA's open-gpu-kernel-modules): each architecture, by product and by chip.
CARDS = [
    ("1200", "NVIDIA card", "Fermi or older", False),  # GTX 560 Ti
    ("0dc4", "NVIDIA card", "Fermi or older", False),  # GTS 450
    ("1187", "GK104", "Kepler", False),  # GTX 760
    ("1380", "GeForce GTX 750 Ti", "Maxwell", False),
    ("1c8d", "GP107", "Pascal", False),  # GTX 1050 Mobile
    ("1db1", "Tesla V100", "Volta", False),
    ("1e07", "GeForce RTX 2080 Ti", "Turing", True),
    ("1f99", "TU117", "Turing", True),  # GTX 1650 Mobile
    ("20b0", "A100", "Ampere", True),
    ("2560", "GA106", "Ampere", True),  # RTX 3060 Mobile
    ("2684", "GeForce RTX 4090", "Ada", True),
    ("2331", "H100 PCIe", "Hopper", True),
    ("2901", "B200", "Blackwell", True),
    ("2e12", "GB10", "Blackwell", True),
    ("3182", "GB110", "Blackwell", True),  # B300
]

DEBIAN = {"id": "debian", "version": "12", "name": "Debian GNU/Linux 12 (bookworm)"}
TRIXIE = {"id": "debian", "version": "13", "name": "Debian GNU/Linux 13 (trixie)"}
UBUNTU = {"id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04.3 LTS"}
FEDORA = {"id": "fedora", "version": "42", "name": "Fedora Linux 42"}


def machine(*devices: str, name: str = "tower", **known: Any) -> GpuMachine:
    """Return a machine with NVIDIA cards of these ids; `maker:id` is another maker's."""
    options = {key: known.pop(key) for key in OPTIONS & known.keys()}
    holds = known.pop("holds", "")
    cards = [
        {"vendor": vendor or "10de", "device": number, "driver": holds}
        for vendor, _, number in (device.rpartition(":") for device in devices)
    ]
    if known.get("system") == UBUNTU:
        kernel, following = "6.14.0-37-generic", "generic-hwe-24.04"
    else:
        kernel, following = "6.1.0-40-amd64", "amd64"
    look = {
        "cards": cards,
        "system": DEBIAN,
        "architecture": "x86_64",
        "kernel": kernel,
        "images": [f"linux-image-{following}", f"linux-image-{kernel}"],
        "desktop": False,
        "loaded": "",
        "modules": "",
        "library": "",
        "library_package": "libnvidia-ml1" if known.get("library") else "",
        "answers": False,
        "secure_boot": False,
        "signing_key_enrolled": False,
        "installed": {},
        "module_versions": {},
        "next_kernel": "",
        "prime_off": False,
        "lockout": "",
        "lockout_remedy": "",
    }
    look |= known
    look |= {"works": works(look), "restart": restart_reason(look), "next_boot": next_boot(look)}
    look["remedy"] = remedy(look)
    return GpuMachine(name, look, **({"repository": "nvidia"} | options))


OPTIONS = {"install", "branch", "repository", "url", "key", "toolkit"}


def plan(*devices: str, **known: Any):
    return decide([machine(*devices, **known)])["tower"]


def said(plan: Any) -> str:
    return " ".join(plan.findings)


# ---- the table ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "name", "architecture", "trains"), CARDS)
def test_a_card_is_known_by_its_id_and_refused_by_name_where_torch_lacks_it(
    device, name, architecture, trains
):
    found, its = card(device), plan(device)
    assert (found.name, found.architecture, found.trains) == (name, architecture, trains)
    assert found.needs_open == (architecture == "Blackwell")
    assert found.needs_proprietary == (architecture in ("Maxwell", "Pascal", "Volta"))
    if trains:
        assert (its.action, its.branch, its.open_modules) == ("install", 580, True)
        assert_names(its.note, name)
    else:
        assert its.action == "refuse"
        assert_names(said(its), name, architecture, f"10de:{device}", "driver_install: off")
        assert not its.packages


@pytest.mark.parametrize("device", ["3f00", "2fff", "22ff"])
def test_an_id_that_the_table_lacks_is_taken_for_a_new_card_and_said_to_be_a_guess(device):
    its = plan(device)
    assert its.action == "install"
    assert its.open_modules
    assert_names(its.note, f"10de:{device}")


# ---- what is installed --------------------------------------------------------------------------


HEADLESS = ["nvidia-headless-no-dkms-580-open", "nvidia-utils-580"]


@pytest.mark.parametrize(
    ("devices", "known", "kind", "packages"),
    [
        (["2482"], {"system": UBUNTU}, "580-open", HEADLESS),
        (["2482"], {"system": UBUNTU, "desktop": True}, "580-open", ["nvidia-driver-580-open"]),
        (
            *(["2482", "1b06"], {"system": UBUNTU}, "580"),  # proprietary modules
            ["nvidia-headless-no-dkms-580", "nvidia-utils-580"],
        ),
        (
            *(["2482"], {}, ""),
            ["linux-headers-amd64", "nvidia-driver-cuda", "nvidia-kernel-open-dkms"],
        ),
        (["2482"], {"desktop": True}, "", ["linux-headers-amd64", "nvidia-open"]),
    ],
)
def test_the_packages_fit_cards_system_and_screen(devices, known, kind, packages):
    its = plan(*devices, **known)
    assert (its.kind, its.packages) == (kind, packages)
    if known.get("system") == UBUNTU:
        assert not its.first
        assert not its.source


def test_debian_uses_nvidias_repository_only_if_told_to():
    its = plan("2482")
    assert its.first == ["nvidia-driver-pinning-580"]
    assert its.source == {
        "url": "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/",
        "key_url": "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/"
        "3bf863cc.pub",
        "fingerprint": "EB693B3035CD5710E231E123A4B469963BF863CC",
    }


def test_an_arm_machine_gets_the_packages_of_its_own_processor():
    kernel = "6.1.0-40-arm64"
    images = ["linux-image-arm64", f"linux-image-{kernel}"]
    its = plan("2482", architecture="aarch64", kernel=kernel, images=images)
    assert its.source["url"].endswith("/debian12/sbsa/")
    assert its.packages[0] == "linux-headers-arm64"
    spark = plan("2e12", architecture="aarch64", system=UBUNTU, kernel="6.14.0-1013-nvidia")
    assert spark.kind == "580-open"


def test_the_repository_of_the_lab_needs_no_key():
    folder = plan("2482", url="file:/opt/lab/repository/nvidia")
    assert folder.source["key_url"] == folder.source["fingerprint"] == ""


@pytest.mark.parametrize(("system", "needs_person"), [(UBUNTU, False), (DEBIAN, True)])
def test_secure_boot_matters_only_for_modules_built_on_the_machine(system, needs_person):
    its = plan("2482", system=system, secure_boot=True)
    assert (its.action == "refuse") == needs_person
    assert ("mokutil --import /var/lib/dkms/mok.pub" in said(its)) == needs_person
    enrolled = plan("2482", system=system, secure_boot=True, signing_key_enrolled=True)
    assert enrolled.action == "install"


@pytest.mark.parametrize(
    ("known", "fact"),
    [
        ({"system": FEDORA}, "Fedora Linux 42"),
        ({"system": DEBIAN | {"version": "11"}, "architecture": "riscv64"}, "driver_install: off"),
        ({"system": UBUNTU, "images": []}, "linux-image"),
        ({"system": TRIXIE, "branch": "580"}, "590"),
        ({"repository": "distribution"}, "driver_repo: nvidia"),
    ],
)
def test_a_machine_that_hearth_cannot_install_for_is_told_what_to_do(known, fact):
    its = plan("2482", **known)
    assert its.action == "refuse"
    assert fact in said(its)


# ---- machines with several cards ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "wanted", "open_modules", "note"),
    [
        (("2482", "1b06"), "auto", False, "GTX 1080 Ti (Pascal, 10de:1b06)"),
        (("1db1", "2684"), "580", False, "Tesla V100 (Volta, 10de:1db1)"),
        (("2482", "1b06"), "590", True, "GTX 1080 Ti (Pascal, 10de:1b06)"),
        (("2c05", "1b06"), "auto", True, "GTX 1080 Ti (Pascal, 10de:1b06)"),
        (("2482", "1004"), "auto", True, "GTX 780 (Kepler, 10de:1004)"),
        (("2482", "2c05"), "auto", True, "RTX 3070 Ti"),
        (("8086:a780", "2482"), "auto", True, "RTX 3070 Ti"),
    ],
)
def test_an_old_card_beside_one_that_trains(devices, wanted, open_modules, note):
    its = plan(*devices, branch=wanted)
    assert its.action == "install"
    assert its.open_modules == open_modules
    assert ("nvidia-kernel-open-dkms" in its.packages) == open_modules
    assert ("nvidia-kernel-dkms" in its.packages) != open_modules
    assert note in its.note


@pytest.mark.parametrize(
    ("devices", "known", "facts"),
    [
        ((), {}, ["NVIDIA", "processor"]),
        (("1002:744c",), {}, ["AMD"]),
        (("8086:a780", "1002:744c"), {}, ["AMD and Intel"]),
        (("1b06",), {"install": False}, []),
        (("2482",), {"holds": "vfio-pci"}, ["vfio-pci"]),  # a virtual machine's
        ((), {"prime_off": True, "install": False}, []),
    ],
)
def test_a_machine_without_an_nvidia_card_for_hearth_is_left_alone(devices, known, facts):
    its = plan(*devices, **known)
    assert its.action == "none"
    assert_names(its.note, *facts)


# ---- what is there already ----------------------------------------------------------------------

WORKING = {"loaded": "590.48.01", "library": "590.48.01", "answers": True, "modules": "open"}
TWO_VERSIONS = {"loaded": "580.95.05", "library": "580.126.09"}
UNLOADED = {"library": "580.126.09"}
NEWEST = "6.14.0-40-generic"
NO_MODULE = {"next_kernel": NEWEST, "module_versions": {"6.14.0-37-generic": "580.126.09"}}
UBUNTUS = {
    "linux-modules-nvidia-580-open-6.14.0-37-generic": "1",
    "linux-modules-nvidia-580-open-generic-hwe-24.04": "1",
    "nvidia-driver-580-open": "1",
    "nvidia-kernel-common-580": "1",
}


def _module(version: str) -> dict[str, Any]:
    """Return the facts of a machine whose newest kernel has a module of this version."""
    return {"next_kernel": NEWEST, "module_versions": {NEWEST: version}}


@pytest.mark.parametrize("package", ["libnvidia-ml1", ""])  # "": NVIDIA's .run installer
def test_a_working_newer_driver_is_left_as_it_is_whoever_installed_it(package):
    its = plan("2c05", **WORKING, library_package=package, repository="distribution")
    assert its.action == "keep"
    assert_names(its.note, "590.48.01", "open")


def test_a_driver_that_is_too_old_is_replaced_if_a_package_brought_it():
    old = {"loaded": "535.261.03", "library": "535.261.03", "answers": True}
    its = plan("2482", **old, system=UBUNTU)
    assert (its.action, its.branch) == ("install", 580)
    by_hand = plan("2482", **old, system=UBUNTU, library_package="")
    assert by_hand.action == "refuse"
    assert "nvidia-uninstall" in said(by_hand)


def test_a_machine_whose_modules_lag_behind_its_kernel_keeps_its_branch():
    its = plan("2482", library="590.48.01", system=UBUNTU)
    assert (its.action, its.branch, its.kind) == ("install", 590, "590-open")


@pytest.mark.parametrize(
    ("known", "system"),
    [
        # Loaded, but nvidia-smi does not answer: no package mends that, and a person is told so.
        ({"loaded": "580.126.09", "library": "580.126.09"}, UBUNTU),
        ({"loaded": "580.126.09", "library": "580.126.09"}, DEBIAN),
        ({"library": "590.48.01"}, DEBIAN),
    ],
)
def test_a_driver_that_is_new_enough_but_fails_is_not_installed_over(known, system):
    assert plan("2482", **known, system=system, repository="distribution").action == "load"


@pytest.mark.parametrize(("device", "action"), [("2c05", "refuse"), ("2684", "load")])
def test_a_card_that_needs_open_modules_is_not_left_with_the_others(device, action):
    loaded = {"loaded": "580.126.09", "library": "580.126.09", "modules": "proprietary"}
    its = plan(device, **loaded)
    assert its.action == action
    assert ("open kernel modules" in said(its)) == (action == "refuse")


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (TWO_VERSIONS, "580.95.05"),
        (UNLOADED | {"holds": "nouveau"}, "nouveau"),
        (UNLOADED | {"module_versions": {"6.1.0-41-amd64": ""}}, "6.1.0-41-amd64"),
        (UNLOADED, ""),
        ({"library": "535.261.03", "loaded": "535.247.01"}, ""),
        ({"holds": "nouveau"}, ""),
        (WORKING, ""),
        # The newest kernel has no module, or one of another version: a restart does not help.
        (TWO_VERSIONS | NO_MODULE, ""),
        (UNLOADED | {"holds": "nouveau"} | NO_MODULE, ""),
        (TWO_VERSIONS | _module("580.126.09"), "580.95.05"),
        (TWO_VERSIONS | _module("580.142.02"), ""),
    ],
)
def test_only_a_loaded_module_of_another_version_or_nouveau_needs_a_restart(known, why):
    its = machine("2482", **known)
    assert why in restart_reason(its.look)
    assert bool(why) == bool(restart_reason(its.look))
    if why:  # also where Canonical might have newer packages
        on_ubuntu = machine("2482", **known, system=UBUNTU)
        assert [decide([each])["tower"].action for each in (its, on_ubuntu)] == ["load", "load"]


@pytest.mark.parametrize(
    ("known", "output", "options", "finding"),
    [
        (TWO_VERSIONS, "", {"may_restart": False}, "hearth reboot --nodes tower"),
        (TWO_VERSIONS, "", {}, ""),
        (TWO_VERSIONS, "", {"controller": True}, "580.95.05"),
        (UNLOADED, "modprobe: ERROR: Key was rejected by service", {}, "mokutil"),
        (UNLOADED, "modprobe: FATAL: Module nvidia not found", {}, "not found"),
        (UNLOADED | {"loaded": "580.126.09"}, "", {}, "nvidia-smi"),
        (WORKING, "", {}, ""),
        (TWO_VERSIONS | NO_MODULE, "", {}, NEWEST),
        (TWO_VERSIONS | _module("580.142.02"), "", {}, "580.142.02"),
    ],
)
def test_a_restart_is_done_only_if_allowed_and_what_does_not_load_is_explained(
    known, output, options, finding
):
    options = {"may_restart": True, "controller": False} | options
    how = "hearth reboot --nodes tower"
    answer = after_install(machine("2482", **known).look, output, how, **options)
    assert finding in answer
    assert bool(finding) == bool(answer)


@pytest.mark.parametrize(
    ("installed", "command"),
    [
        (
            UBUNTUS,
            f"apt-get install linux-modules-nvidia-580-open-{NEWEST} nvidia-driver-580-open",
        ),
        ({"nvidia-kernel-open-dkms": "1"}, f"dkms autoinstall --force -k {NEWEST}"),
        ({"nvidia-headless-no-dkms-580-open": "1"}, f"for kernel {NEWEST}"),
        ({}, f"for kernel {NEWEST}"),
    ],
)
def test_a_newest_kernel_without_a_module_is_told_what_helps(installed, command):
    known = {"library": "580.126.09", "installed": installed} | NO_MODULE
    look = machine("2482", **known).look
    answer = after_install(look, "", "reboot", may_restart=True, controller=False)
    assert_names(answer, NEWEST, command, "6.14.0-37-generic")
    # A driver that works is warned of before the restart that loses it.
    works = decide([machine("2482", **WORKING | known | {"library": "590.48.01"})])["tower"]
    assert works.action == "keep"
    assert_names(works.note, NEWEST, command)


LOST = {"lockout": "no driver for enp5s0 (r8169)", "lockout_remedy": "apt-get install extra"}


@pytest.mark.parametrize("options", [{"may_restart": True}, {}, {"controller": True}])
def test_no_restart_is_asked_for_or_made_that_loses_the_machine(options):
    options = {"may_restart": False, "controller": False} | options
    for needs_it in (TWO_VERSIONS, UNLOADED | {"holds": "nouveau"}):
        look = machine("2482", **needs_it | LOST).look
        assert_names(after_install(look, "", "playbooks/reboot.yml", **options), *LOST.values())


@pytest.mark.parametrize(
    "known",
    [
        {"prime_off": True},
        {"loaded": "580.126.09", "library": "580.126.09", "modules": "proprietary"},
    ],
)
def test_a_finding_that_asks_for_a_restart_names_what_it_would_lose(known):
    safe, lost = (decide([machine("2c05", **known | more)])["tower"] for more in ({}, LOST))
    assert safe.action == lost.action == "refuse"
    assert_names(said(lost), *LOST.values())
    assert LOST["lockout"] not in said(safe)


def test_a_driver_that_works_is_warned_of_a_next_kernel_that_loses_the_machine():
    assert_names(plan("2c05", **WORKING | LOST).note, *LOST.values())


@pytest.mark.parametrize("known", [NO_MODULE, _module("580.142.02")])
def test_on_ubuntu_module_and_user_space_are_brought_together_where_a_restart_does_not(known):
    its = plan("2482", system=UBUNTU, **TWO_VERSIONS | known)
    assert (its.action, its.kind) == ("install", "580-open")
    assert "nvidia-utils-580" in its.packages


def test_a_card_that_prime_select_takes_off_the_bus_is_named():
    its = plan(prime_off=True)
    assert its.action == "refuse"
    assert_names(said(its), "prime-select intel", "prime-select on-demand", "driver_install: off")
    assert plan("2482", prime_off=True, **WORKING).action == "keep"


@pytest.mark.parametrize(
    ("system", "command"),
    [
        ("ubuntu", "update-secureboot-policy --enroll-key"),
        ("debian", "mokutil --import /var/lib/dkms/mok.pub"),
    ],
)
def test_a_rejected_module_is_explained_in_the_systems_own_words(system, command):
    look = machine("2482", **UNLOADED, system={"id": system}).look
    output = "modprobe: ERROR: Key was rejected by service"
    said = after_install(look, output, "", may_restart=False, controller=False)
    assert_names(said, command)
    assert ("/var/lib/dkms" in said) == (system == "debian")


def test_a_driver_works_only_if_new_loaded_of_one_version_and_answering():
    good = machine("2482", **WORKING).look
    assert works(good)
    for broken in (
        {"answers": False},
        {"loaded": "580.95.05"},
        {"loaded": "575.64.03", "library": "575.64.03"},
    ):
        assert not works({**good, **broken})


# ---- clusters -----------------------------------------------------------------------------------


def test_a_release_that_begins_with_a_newer_branch_raises_that_of_all_who_install():
    machines = [machine("2482", name="new", system=TRIXIE), machine("2c05", name="tower")]
    assert {its.branch for its in decide(machines).values()} == {590}
    # One that works does not count.
    machines[0] = machine("2482", name="new", system=TRIXIE, **WORKING)
    assert decide(machines)["tower"].branch == 580


def test_machines_that_ask_for_different_branches_are_refused():
    with refuses(ValueError, "tower 580", "laptop 590"):
        decide([machine("2482", branch="580"), machine("2860", name="laptop", branch="590")])


@pytest.mark.parametrize("wanted", ["575", "0", "newest", "580.95", "-1"])
def test_a_branch_below_the_floor_is_refused(wanted):
    with refuses(ValueError, f"driver_branch: {wanted}"):
        plan("2482", branch=wanted)


def test_all_findings_of_a_machine_come_at_once():
    its = plan("2482", system=TRIXIE, branch="580", secure_boot=True)
    assert len(its.findings) == 2


def test_the_screen_says_what_each_machine_gets_and_those_alike_together():
    plans = decide(
        [
            machine("2c05", name="tower"),
            machine("1002:744c", name="couch"),
            machine("1002:744c", name="attic"),
            machine("1b06", name="oldbox"),
        ]
    )
    assert plans["tower"].packages[-1] == "nvidia-kernel-open-dkms"
    assert plans["oldbox"].findings
    tower, others = shown(plans).splitlines()
    assert_names(tower, "tower", "GeForce RTX 5070 Ti (Blackwell, 10de:2c05)", "580", "open")
    assert_names(others, "couch, attic", "AMD")


# ---- headers ------------------------------------------------------------------------------------


def test_the_headers_of_debian_are_of_the_package_or_of_the_kernel_alone():
    alone = ["linux-image-6.1.0-40-amd64"]
    assert debian_headers(["linux-image-amd64", *alone]) == ["linux-headers-amd64"]
    assert debian_headers(alone) == ["linux-headers-6.1.0-40-amd64"]
    assert debian_headers([]) == []


@pytest.mark.parametrize(
    ("known", "package", "place", "priority"),
    [
        ({"repository": "distribution"}, "nvidia-cuda-toolkit", None, None),
        ({"repository": "nvidia"}, "cuda-toolkit-13-0", "ubuntu2404/x86_64", "100"),
        ({"repository": "nvidia", "system": TRIXIE}, "cuda-toolkit-13-0", "debian13/x86_64", ""),
    ],
)
def test_the_toolkit_is_torchs_own_from_nvidia_beside_canonicals_driver(
    known, package, place, priority
):
    planned = plan("2684", toolkit=True, **{"system": UBUNTU} | known)
    assert (planned.toolkit, planned.toolkit_source.get("priority")) == (package, priority)
    assert (place or "") in planned.toolkit_source.get("url", "")
    assert not plan("2684", **{"system": UBUNTU} | known).toolkit
    assert not plan("8086:1234", toolkit=True, **{"system": UBUNTU} | known).toolkit


def test_a_toolkit_that_no_known_repository_has_is_a_finding():
    newer = UBUNTU | {"version": "28.04"}
    known = {"system": newer, "repository": "nvidia", "toolkit": True}
    assert_names(said(plan("2684", **known)), "cuda_toolkit", "ubuntu2804", "driver_repo")


@pytest.mark.parametrize(
    ("brings", "removes", "fact"),
    [
        ({"nvidia-cuda-toolkit", "libnvidia-ml-dev", "libcudart12", "nvidia-cuda-dev"}, set(), ""),
        ({"cuda-toolkit-13-0", "libcublas-13-0", "cuda-nvcc-13-0"}, set(), ""),
        ({"nvidia-cuda-toolkit", "libnvidia-compute-535"}, set(), "libnvidia-compute-535"),
        ({"cuda-toolkit-13-0", "nvidia-open"}, set(), "nvidia-open"),
        ({"cuda-toolkit-13-0"}, {"gdm3"}, "gdm3"),
    ],
)
def test_the_toolkit_changes_no_driver_and_removes_nothing(brings, removes, fact):
    simulated = Simulation(frozenset(brings), frozenset(removes))
    found = load("modules", "hearth_cuda_toolkit").obstacle("cuda-toolkit-13-0", simulated)
    assert_names(found, *filter(None, [fact]))
    assert bool(found) == bool(fact)


@pytest.mark.parametrize("new_source", [True, False])
def test_a_check_expects_the_toolkit_only_from_a_repository_that_it_would_add(program, new_source):
    for name in ("dpkg-query", "apt-cache"):
        program(name, "true")  # stands in for a machine whose apt knows no such package
    given = {"package": "cuda-toolkit-13-0", "new_source": new_source}
    answer = call("hearth_cuda_toolkit", check=True, **given)
    assert (answer["changed"], bool(answer["findings"])) == (new_source, not new_source)


@pytest.mark.parametrize(
    ("look", "answer", "loads"),
    [
        ({}, "exit 0", (True, "")),
        ({}, "echo No such device >&2; exit 1", (False, "No such device")),
        ({"loaded": "580.65.06"}, "exit 0", (False, "")),
        ({"restart": "nouveau is loaded"}, "exit 0", (False, "")),
    ],
)
def test_a_driver_is_loaded_where_none_is_and_no_restart_must_come_first(
    program, look, answer, loads
):
    program("modprobe", f'[ "$*" = nvidia ] || exit 2; {answer}')
    assert driver.load({"loaded": "", "restart": ""} | look) == loads
