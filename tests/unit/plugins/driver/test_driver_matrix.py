"""The driver stage on Ubuntu, by apt's own solver over the package lists of the real archives."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from ansible.module_utils.hearth_node.driver.choice import System, Wish, choose
from support.facts import assert_names
from support.ubuntu import Archive, Computer, Driver, Kernel
from support.ubuntu_matrix import KERNELS, Case, cases, play

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="needs apt")

CASES = list(cases())
OPEN = Wish(("nvidia-headless-no-dkms-580-open", "nvidia-utils-580"), "580-open")
HWE = "linux-modules-nvidia-580-open-generic-hwe-24.04"


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Callable[[str], Archive]:
    """Return a function that opens the archive of a release."""
    return cache(lambda version: Archive(version, tmp_path_factory.mktemp("archive") / version))


def check(archive: Archive, status: Path) -> None:
    """Have apt confirm that what is installed fits together."""
    command = ["apt-get", *archive.options("updates", str(status)), "check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-2000:]


# ---- the matrix ---------------------------------------------------------------------------------


def test_the_matrix_has_every_release_kernel_and_driver_with_and_without_secure_boot():
    assert len(CASES) >= 60
    for one in ("release", "driver", "kind", "secure_boot"):
        assert min(Counter(getattr(case, one) for case in CASES).values()) > 10
    states = {(case.release, case.kernels) for case in CASES}
    assert len(states) == sum(map(len, KERNELS.values()))
    both = Counter((case.driver, case.secure_boot) for case in CASES)
    assert len(both) == 2 * len({case.driver for case in CASES})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_call_is_solvable_boots_with_network_and_keeps_the_desktop(archive, tmp_path, case):
    computer = case.computer(archive(case.release), tmp_path / "machine")
    check(archive(case.release), tmp_path / "machine" / "status")
    its = play(case, computer)
    before = frozenset(computer.apt.installed)
    if case.driver == ".run":  # nothing of a package's is put over it, and a person is told
        assert "nvidia-uninstall" in " ".join(its.plan.findings)
        assert its.packages == before
        return
    assert not its.choice.findings
    assert_boots(case, archive(case.release), its.kernel, its.packages)
    gone = before - its.packages
    assert all("nvidia" in name for name in gone)
    if case.kind == "desktop":
        assert {"ubuntu-desktop", "gnome-shell", "gdm3", "xserver-xorg-core"} <= its.packages
        assert "nvidia-driver-580-open" in its.packages
    assert "nvidia-utils-580" in its.packages


def assert_boots(case: Case, archive: Archive, kernel: str, packages: frozenset[str]) -> None:
    """Assert that the kernel that a restart takes has the modules of network, disk and GPU."""
    assert {f"linux-image-{kernel}", f"linux-modules-{kernel}"} <= packages
    if case.kernels != "virtual" and archive.has(f"linux-modules-extra-{kernel}"):
        assert f"linux-modules-extra-{kernel}" in packages
    assert f"linux-modules-nvidia-580-open-{kernel}" in packages
    # No other module of NVIDIA's may take its place.
    brought = re.compile(r"(?:nvidia-dkms|linux-modules-nvidia)-(580-open|\d+(?:-open)?)(-.*)?")
    kinds = {found[1] for name in packages if (found := brought.fullmatch(name))}
    assert kinds == {"580-open"}
    assert not (case.secure_boot and "nvidia-dkms-580-open" in packages)


def test_a_second_time_there_is_nothing_to_change(archive, tmp_path):
    case = next(each for each in CASES if each.driver == "none" and each.kernels == "GA, lagging")
    computer = case.computer(archive(case.release), tmp_path / "first")
    first = play(case, computer)
    assert first.choice.changes
    computer.carry_out(first.choice.words)
    check(archive(case.release), tmp_path / "first" / "status")
    system = System(case.installed[-1].release, first.kernel, case.release)
    again = choose(computer.apt, Wish(tuple(first.plan.packages), first.plan.kind), system)
    assert (again.changes, again.findings) == (False, [])


# ---- single states ------------------------------------------------------------------------------


def chosen(archive, folder, kernels, wish=OPEN, driver=None, newest="", **more):
    """Return the choice for a server of 24.04 with these kernels, the last of which runs."""
    computer = Computer(archive("24.04"), folder / "machine", "server", kernels, driver, **more)
    running = kernels[-1].release
    return choose(computer.apt, wish, System(running, newest or running, "24.04"))


def test_the_kernels_own_packages_are_in_the_same_call(archive, tmp_path):
    its = chosen(archive, tmp_path, [Kernel("6.17.0-14-generic", "generic-hwe-24.04")])
    assert {HWE, *OPEN.packages} <= {*its.packages}
    assert {"linux-image-generic-hwe-24.04", "linux-headers-generic-hwe-24.04"} <= {*its.packages}
    bare = [Kernel("6.17.0-14-generic", "generic-hwe-24.04", whole=False)]
    its = chosen(archive, tmp_path / "bare", bare)
    assert not [name for name in its.packages if "headers" in name]


@pytest.mark.parametrize(
    ("release", "there"), [("6.17.0-14-generic", False), ("7.0.0-44-generic", True)]
)
def test_modules_of_the_running_kernel_come_only_where_apt_can_install_them(
    archive, tmp_path, release, there
):
    """Those of a kernel that is superseded want the driver of its day."""
    kernels = [Kernel("7.0.0-44-generic", "generic-hwe-24.04"), Kernel(release)]
    assert archive("24.04").has(f"linux-modules-nvidia-580-open-{release}")
    its = chosen(archive, tmp_path, kernels)
    assert not its.findings
    computer = Computer(archive("24.04"), tmp_path / "again", "server", kernels)
    after = computer.apt.after(computer.apt.simulate(tuple(its.words)))
    assert (f"linux-modules-nvidia-580-open-{release}" in after) == there


@pytest.mark.parametrize(
    ("kernel", "goal"),
    [
        (Kernel("6.11.0-1027-oem", "oem-24.04b"), "generic-hwe-24.04"),
        (Kernel("6.11.0-1016-lowlatency", "lowlatency-hwe-24.04"), "generic-hwe-24.04"),
    ],
)
def test_a_flavour_that_has_ended_leads_to_its_successor_and_that_is_said(
    archive, tmp_path, kernel, goal
):
    its = chosen(archive, tmp_path, [kernel])
    assert f"linux-modules-nvidia-580-open-{goal}" in its.packages
    assert_names(" ".join(its.notes), kernel.flavour, goal)


def test_a_flavour_without_modules_is_left_out_with_the_reason(archive, tmp_path):
    kernels = [
        Kernel("6.11.0-1027-oem", "oem-6.11"),
        Kernel("7.0.0-44-generic", "generic-hwe-24.04"),
    ]
    its = chosen(archive, tmp_path, kernels)
    assert HWE in its.packages
    assert not [name for name in its.packages if "oem" in name]
    assert_names(" ".join(its.notes), "oem-6.11", "580.65.06")


def test_a_newest_kernel_that_no_package_has_modules_for_is_a_finding(archive, tmp_path):
    kernels = [Kernel("7.0.0-44-generic", "generic-hwe-24.04")]
    its = chosen(archive, tmp_path, kernels, newest="7.9.0-070900-generic")
    assert not its.packages
    assert_names(" ".join(its.findings), "7.9.0-070900-generic")


@pytest.mark.parametrize("held", ["linux-image-generic-hwe-24.04", "linux-generic-hwe-24.04"])
def test_a_kernel_that_is_held_back_brings_no_other_one_and_is_named(archive, tmp_path, held):
    kernels = [Kernel("6.17.0-14-generic", "generic-hwe-24.04")]
    its = chosen(archive, tmp_path, kernels, held=[held])
    said = " ".join([*its.findings, *its.notes])
    assert_names(said, held, f"apt-mark unhold {held}")
    assert HWE not in its.packages


def test_a_driver_that_is_held_back_is_a_finding_in_apts_words(archive, tmp_path):
    kernels = [Kernel("7.0.0-44-generic", "generic-hwe-24.04")]
    old = Driver("580.95.05", is_open=True)
    its = chosen(archive, tmp_path, kernels, driver=old, held=["nvidia-utils-580"])
    assert not its.packages
    assert its.findings


def test_a_branch_that_has_ended_leads_to_the_one_that_follows(archive, tmp_path):
    wish = Wish(("nvidia-headless-no-dkms-590-open", "nvidia-utils-590"), "590-open")
    its = chosen(archive, tmp_path, [Kernel("7.0.0-44-generic", "generic-hwe-24.04")], wish)
    assert "linux-modules-nvidia-595-open-generic-hwe-24.04" in its.packages
    assert "nvidia-utils-595" in its.packages
    assert_names(" ".join(its.notes), "590", "595")


def test_a_branch_that_the_archive_lacks_is_named_with_what_it_has(archive, tmp_path):
    wish = Wish(("nvidia-headless-no-dkms-999-open", "nvidia-utils-999"), "999-open")
    its = chosen(archive, tmp_path, [Kernel("7.0.0-44-generic", "generic-hwe-24.04")], wish)
    assert_names(" ".join(its.findings), "999-open", "driver_branch", "apt-cache search")


def test_where_dkms_builds_the_modules_extra_packages_come_only_if_apt_can(archive, tmp_path):
    there, gone = "linux-headers-7.0.0-44-generic", "linux-headers-6.17.0-99-generic"
    wish = Wish(("nvidia-utils-580",), extra=(there, gone))
    bare = [Kernel("7.0.0-44-generic", "generic-hwe-24.04", whole=False)]
    assert chosen(archive, tmp_path, bare, wish).packages == ["nvidia-utils-580", there]


def test_a_package_that_is_no_drivers_is_never_removed_for_it(archive, tmp_path):
    wish = Wish(("mawk", "ubuntu-minimal-"))
    its = chosen(archive, tmp_path, [Kernel("7.0.0-44-generic", "generic-hwe-24.04")], wish)
    assert not its.packages
    assert "ubuntu-minimal" in " ".join(its.findings)
