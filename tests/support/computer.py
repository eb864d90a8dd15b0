"""Snapshots of a computer's networks, mounts and processes, to detect leftovers."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

LAB = "-".join(["hearth-lab", *filter(None, [os.environ.get("HEARTH_LAB")])])

PROGRAMS = ("systemd-nspawn", "systemd-networkd", "dnsmasq", "nsenter", "nc")
# Kernel settings that hold for the whole computer, and that systemd would set.
SETTINGS = ("kernel/core_pattern", "kernel/pid_max", "kernel/hostname", "fs/suid_dumpable")


def snapshot() -> dict[str, list[str]]:
    """Return everything that the lab could leave behind, one list of lines a kind."""
    return {
        "interfaces": _lines("ip", "-brief", "link"),
        "addresses": _lines("ip", "-brief", "address"),
        "routes": [*_lines("ip", "route"), *_lines("ip", "-6", "route")],
        "network namespaces": _names(Path("/run/netns")),
        "the lab's folder": _names(Path("/run", LAB)),
        "mounts": sorted(Path("/proc/self/mounts").read_text().splitlines()),
        "processes": _processes(),
        "control groups": sorted(
            str(path)
            for top in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir())
            for path in top.glob(LAB)
        ),
        "kernel settings": [
            f"{name} {Path('/proc/sys', name).read_text().strip()}" for name in SETTINGS
        ],
        "forwarding": [Path("/proc/sys/net/ipv4/ip_forward").read_text().strip()],
        "traces of nspawn": [
            *_names(Path("/run/systemd/nspawn/propagate")),
            *_names(Path("/run/systemd/machines")),
        ],
    }


def _lines(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.splitlines()


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _processes() -> list[str]:
    found = []
    for path in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended
            words = (path / "cmdline").read_text(errors="replace").split("\0")
            if path.name.isdigit() and Path(words[0]).name in PROGRAMS:
                found.append(f"{path.name} {' '.join(words)}")
    return sorted(found)
