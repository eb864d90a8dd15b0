"""A Linux under Windows is recognised, and its shortcomings as a node named."""

from __future__ import annotations

import pytest
from ansible.module_utils.hearth_node.system import wsl
from support.facts import assert_names

KEPT = "[network]\ngenerateHosts = false\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function that writes a machine's files and inspects it."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def make(kernel: str, conf: str = KEPT, gpu: bool = False) -> wsl.Wsl:
        files = {"proc/sys/kernel/osrelease": f"{kernel}\n", "etc/wsl.conf": conf}
        files |= {"usr/lib/wsl/lib/nvidia-smi": ""} if gpu else {}
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return wsl.inspect_wsl(str(tmp_path))

    return make


def wrong(found: wsl.Wsl, **changed) -> list[str]:
    fine = {"address": "192.168.1.40", "has_address": True, "systemd": True, "lock": "gpu"}
    return wsl.findings(found, **fine | changed)


WSL2 = "5.15.153.1-microsoft-standard-WSL2"


@pytest.mark.parametrize(
    ("kernel", "version"),
    [("6.8.0-45-generic", 0), ("4.4.0-19041-Microsoft", 1), (WSL2, 2)],
)
def test_wsl_is_told_by_its_kernel(machine, kernel, version):
    found = machine(kernel)
    assert found.version == version
    assert bool(wrong(found)) == (version == 1)
    if not version:
        assert not wrong(found, has_address=False, systemd=False, lock="auto")


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        ({"has_address": False}, ["192.168.1.40", "networkingMode=mirrored", ".wslconfig"]),
        ({"systemd": False}, ["systemd=true", "/etc/wsl.conf"]),
    ],
)
def test_a_wsl_machine_that_is_no_node_yet_is_told_the_setting(machine, changed, facts):
    (finding,) = wrong(machine(WSL2), **changed)
    assert_names(finding, *facts, "docs/machines.md")


@pytest.mark.parametrize("conf", ["", "[network]\ngenerateHosts = true\n", "generateHosts"])
def test_a_hosts_file_that_wsl_writes_is_found(machine, conf):
    (finding,) = wrong(machine(WSL2, conf))
    assert_names(finding, "/etc/hosts", "generateHosts=false", "/etc/wsl.conf")


def test_a_gpu_that_windows_drives_is_not_left_idle(machine):
    assert not wrong(machine(WSL2), lock="auto")
    unseen, off_path = wrong(machine(WSL2, gpu=True), lock="auto")
    assert_names(unseen, "python_lock: gpu", "CPU")
    assert_names(off_path, "/usr/lib/wsl/lib/nvidia-smi")
