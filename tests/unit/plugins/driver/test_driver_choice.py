"""The packages of a driver on single machines of Ubuntu, by apt over the real archives' lists."""

from __future__ import annotations

import shlex

import pytest
from ansible.module_utils.hearth_node.driver.apt import reason
from ansible.module_utils.hearth_node.driver.choice import System, Wish, choose
from support.facts import assert_names
from support.modules import call
from support.ubuntu import Computer, Driver, Kernel

OPEN = Wish(("nvidia-headless-no-dkms-580-open", "nvidia-utils-580"), "580-open")
HWE = "linux-modules-nvidia-580-open-generic-hwe-24.04"
CURRENT = Kernel("7.0.0-44-generic", "generic-hwe-24.04")


def chosen(archive, folder, kernels, wish=OPEN, driver=None, newest="", **more):
    """Return the choice for a server of 24.04 with these kernels, the last one running."""
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
    """Those of a kernel that is superseded want its own driver."""
    kernels = [CURRENT, Kernel(release)]
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
        CURRENT,
    ]
    its = chosen(archive, tmp_path, kernels)
    assert HWE in its.packages
    assert not [name for name in its.packages if "oem" in name]
    assert_names(" ".join(its.notes), "oem-6.11", "580.65.06")


def test_a_newest_kernel_that_no_package_has_modules_for_is_a_finding(archive, tmp_path):
    kernels = [CURRENT]
    its = chosen(archive, tmp_path, kernels, newest="7.9.0-070900-generic")
    assert not its.packages
    assert_names(" ".join(its.findings), "7.9.0-070900-generic")


@pytest.mark.parametrize(
    "held", ["linux-image-generic-hwe-24.04", "linux-generic-hwe-24.04", "linux-image-generic"]
)
def test_a_kernel_that_is_held_back_brings_no_other_one_and_is_named(archive, tmp_path, held):
    """Neither a newer one of its flavour nor one of another flavour."""
    flavour = held.removeprefix("linux-").removeprefix("image-")
    release = "6.17.0-14-generic" if "hwe" in flavour else "6.8.0-41-generic"
    its = chosen(archive, tmp_path, [Kernel(release, flavour)], held=[held])
    assert not its.packages
    assert_names(" ".join(its.findings), held, f"apt-mark unhold {held}")


def test_a_kernel_that_is_held_back_gets_its_modules_where_the_archive_has_them(archive, tmp_path):
    its = chosen(archive, tmp_path, [CURRENT], held=["linux-image-generic-hwe-24.04"])
    assert "linux-modules-nvidia-580-open-7.0.0-44-generic" in its.packages
    assert not [name for name in its.packages if name.startswith("linux-image-")]


def test_a_driver_that_is_held_back_is_a_finding_in_apts_words(archive, tmp_path):
    kernels = [CURRENT]
    old = Driver("580.95.05", is_open=True)
    its = chosen(archive, tmp_path, kernels, driver=old, held=["nvidia-utils-580"])
    assert not its.packages
    assert its.findings


def test_a_branch_that_has_ended_leads_to_the_one_that_follows(archive, tmp_path):
    wish = Wish(("nvidia-headless-no-dkms-590-open", "nvidia-utils-590"), "590-open")
    its = chosen(archive, tmp_path, [CURRENT], wish)
    assert "linux-modules-nvidia-595-open-generic-hwe-24.04" in its.packages
    assert "nvidia-utils-595" in its.packages
    assert_names(" ".join(its.notes), "590", "595")


def test_a_branch_that_the_archive_lacks_is_named_with_what_it_has(archive, tmp_path):
    wish = Wish(("nvidia-headless-no-dkms-999-open", "nvidia-utils-999"), "999-open")
    its = chosen(archive, tmp_path, [CURRENT], wish)
    assert_names(" ".join(its.findings), "999-open", "driver_branch", "apt-cache search")


def test_where_dkms_builds_the_modules_extra_packages_come_only_if_apt_can(archive, tmp_path):
    there, gone = "linux-headers-7.0.0-44-generic", "linux-headers-6.17.0-99-generic"
    wish = Wish(("nvidia-utils-580",), extra=(there, gone))
    bare = [Kernel("7.0.0-44-generic", "generic-hwe-24.04", whole=False)]
    assert chosen(archive, tmp_path, bare, wish).packages == ["nvidia-utils-580", there]


def test_a_package_that_is_no_drivers_is_never_removed_for_it(archive, tmp_path):
    wish = Wish(("mawk", "ubuntu-minimal-"))
    its = chosen(archive, tmp_path, [CURRENT], wish)
    assert not its.packages
    assert "ubuntu-minimal" in " ".join(its.findings)


# ---- the module ---------------------------------------------------------------------------------


@pytest.fixture
def machine(archive, tmp_path, monkeypatch, program):
    """Have apt and dpkg work on a server; return the file of the calls that change something."""
    computer = Computer(archive("24.04"), tmp_path / "machine", "server", [CURRENT])
    monkeypatch.setenv("APT_CONFIG", str(computer.configuration))
    calls = tmp_path / "calls"
    calls.touch()
    simulates = 'case " $* " in *" --simulate "*) exec /usr/bin/apt-get "$@";; esac'
    program(
        "apt-get", f'{simulates}\necho "$@" >>{calls}\necho "no space left"; exit ${{BROKEN:-0}}'
    )
    program("dpkg-query", f'shift; exec /usr/bin/dpkg-query --admindir={tmp_path}/machine "$@"')
    return calls


NEEDED = {"packages": ["nvidia-utils-580"], "extra": ["linux-headers-9.9.9-9-generic"]}


def test_the_module_carries_out_the_call_that_apt_has_simulated(machine):
    its = call("hearth_driver_packages", **NEEDED, first=["lowlatency-kernel"])
    assert its["changed"]
    first, second = machine.read_text().splitlines()
    assert shlex.split(first)[-2:] == ["install", "lowlatency-kernel"]
    assert shlex.split(second)[-2:] == ["install", "nvidia-utils-580"]
    assert its["installed"] == ["lowlatency-kernel", "nvidia-utils-580"]
    assert "nvidia-utils-580" in its["note"]


@pytest.mark.parametrize("packages", [["nvidia-utils-580"], ["nvidia-utils-999"]])
def test_in_check_mode_it_says_what_it_would_install_and_calls_nothing(machine, packages):
    its = call("hearth_driver_packages", check=True, packages=packages)
    assert its["changed"]
    assert packages[0] in its["note"]
    assert machine.read_text() == ""


def test_what_is_installed_already_is_no_change(machine):
    its = call("hearth_driver_packages", packages=["linux-image-generic-hwe-24.04"])
    assert not its["changed"]
    assert machine.read_text() == ""


@pytest.mark.parametrize("lacking", ["first", "packages"])
def test_a_package_that_there_is_not_is_a_finding_and_nothing_is_called(machine, lacking):
    its = call("hearth_driver_packages", **NEEDED | {lacking: ["nvidia-driver-pinning-999"]})
    assert_names(" ".join(its["findings"]), "nvidia-driver-pinning-999", "driver_branch")
    assert machine.read_text() == ""


def test_an_installation_that_fails_is_told_in_apts_words(machine, monkeypatch):
    monkeypatch.setenv("BROKEN", "100")
    its = call("hearth_driver_packages", **NEEDED)
    assert its["failed"]
    assert_names(its["msg"], "nvidia-utils-580", "no space left")


# ---- apt's reasons ------------------------------------------------------------------------------

UNMET = """Building dependency tree...
The following packages have unmet dependencies:
 modules-oem : Depends: common (<= 580.65) but 580.178 is to be installed
 driver : Depends: a but it is not going to be installed
          Depends: b but it is not going to be installed
          Depends: c but it is not going to be installed
"""
EXPLAINED = """E: Unable to satisfy dependencies. Reached two conflicting assignments:
   1. modules-oem is selected as an upgrade because:
   2. modules-oem Depends common (<= 580.65)
"""


@pytest.mark.parametrize(
    ("output", "errors", "named", "absent"),
    [
        (
            UNMET,
            "E: Unable to correct problems",
            ["modules-oem", "<= 580.65", "driver", "b"],
            ["c but"],
        ),
        (UNMET, EXPLAINED, ["two conflicting assignments", "modules-oem Depends"], ["driver"]),
        ("", "W: x\nE: Unable to locate package y\n", ["Unable to locate package y"], ["W:"]),
        ("", "", ["no reason"], []),
    ],
)
def test_apts_reason_is_its_explanation_or_the_first_unmet_needs(output, errors, named, absent):
    said = reason(output, errors)
    assert "\n" not in said
    assert_names(said, *named)
    assert not [each for each in absent if each in said]
