"""Linux under Windows (WSL): recognition, and what such a node needs before anything else."""

from __future__ import annotations

import configparser
import os
import shutil
from dataclasses import dataclass

from ansible.module_utils.hearth.base.systems import under_windows
from ansible.module_utils.hearth_node.base import text_of

_PAGE = "docs/machines.md has the steps"
_SMI = "/usr/lib/wsl/lib/nvidia-smi"


@dataclass(frozen=True)
class Wsl:
    """A Linux under Windows.

    `version` is 1 or 2, or 0 on any other machine; `gpu` whether Windows lends it an NVIDIA GPU;
    `smi` whether nvidia-smi is on the path; `hosts_kept` whether WSL leaves /etc/hosts alone.
    """

    version: int
    gpu: bool = False
    smi: bool = False
    hosts_kept: bool = False


def inspect_wsl(root: str = "/") -> Wsl:
    """Inspect the machine below `root`."""
    kernel = text_of(os.path.join(root, "proc/sys/kernel/osrelease")).strip()
    if not under_windows(kernel):
        return Wsl(0)
    settings = configparser.ConfigParser(strict=False, interpolation=None)
    try:
        settings.read_string(text_of(os.path.join(root, "etc/wsl.conf")))
        hosts_kept = not settings.getboolean("network", "generateHosts", fallback=True)
    except (configparser.Error, ValueError):
        hosts_kept = False  # WSL leaves its default where it cannot read a setting
    # WSL 1 calls its kernel 4.4.0-19041-Microsoft, WSL 2 5.15.153.1-microsoft-standard-WSL2.
    return Wsl(
        version=1 if kernel.endswith("-Microsoft") else 2,
        gpu=os.path.exists(os.path.join(root, _SMI.lstrip("/"))),
        smi=shutil.which("nvidia-smi") is not None,
        hosts_kept=hosts_kept,
    )


def findings(wsl: Wsl, address: str, has_address: bool, systemd: bool, lock: str) -> list[str]:
    """Return the reasons why a Linux under Windows cannot be a node yet; none on other machines.

    `address` is its cluster address, `lock` the inventory's python_lock.
    """
    if not wsl.version:
        return []
    if wsl.version == 1:
        return [f"it runs under WSL 1, which has no kernel of its own; WSL 2 is needed ({_PAGE})"]
    cases = [
        (
            not has_address,
            f"it runs under WSL 2 and does not have {address}, which the other nodes would reach "
            "Windows at: set networkingMode=mirrored in .wslconfig of Windows",
        ),
        (
            not systemd,
            "WSL started it without systemd, which runs are started with: set systemd=true under "
            "[boot] in its /etc/wsl.conf",
        ),
        (
            not wsl.hosts_kept,
            "WSL writes /etc/hosts anew at each start: set generateHosts=false under [network] in "
            "its /etc/wsl.conf",
        ),
        (
            wsl.gpu and lock == "auto",
            "Windows drives its GPU, which python_lock: auto does not see, so that it would train "
            "on the CPU: set python_lock: gpu for this node (or cpu)",
        ),
        (
            wsl.gpu and not wsl.smi,
            f"nvidia-smi is not on the path of a login by SSH: sudo ln -s {_SMI} /usr/local/bin/",
        ),
    ]
    return [f"{text} ({_PAGE})" for wrong, text in cases if wrong]
