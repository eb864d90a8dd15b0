"""The driver stage on Ubuntu, by apt's own solver over the package lists of the real archives."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from ansible.module_utils.hearth_node.driver.choice import System, Wish, choose
from support.ubuntu import Archive
from support.ubuntu_matrix import DESKTOP, KERNELS, Case, cases, play

CASES = list(cases())


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
    computer.check()
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
        assert its.packages >= DESKTOP
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
    computer.check()
    system = System(case.installed[-1].release, first.kernel, case.release)
    again = choose(computer.apt, Wish(tuple(first.plan.packages), first.plan.kind), system)
    assert (again.changes, again.findings) == (False, [])
