"""Operating systems, processors and compilers that a node can have.

Triton builds its launcher with a C compiler and Python's headers at the first kernel; torch.compile
also needs them on a processor, where it writes C++. Standard library only: modules ship this file
to machines that have no Hearth yet.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence

# Ansible ships these files under a package of its own.
from .commands import output

KNOWN = {"debian": ("12", "13"), "ubuntu": ("22.04", "24.04", "26.04")}
"""Supported systems, by id and version of /etc/os-release."""


def under_windows(kernel: str) -> bool:
    """Return whether a kernel of this release, such as 6.6.87.2-microsoft-standard-WSL2, is WSL's.

    Windows then drives the GPU, and no program that runs on it there can be seen from Linux.
    """
    return "microsoft" in kernel.lower()


def release_in(text: str) -> dict[str, str]:
    """Return `id`, `version` and `name` from the text of /etc/os-release."""
    words = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {
        key: words.get(word, "").strip("\"'")
        for key, word in (("id", "ID"), ("version", "VERSION_ID"), ("name", "PRETTY_NAME"))
    }


def unknown_os(release: dict[str, str]) -> str:
    """Return the finding about an unsupported operating system, or ''."""
    if release["version"] in KNOWN.get(release["id"], ()):
        return ""
    known = ", ".join(
        f"{name.title()} {', '.join(each[:-1])} and {each[-1]}" for name, each in KNOWN.items()
    )
    return (
        f"runs {release['name'] or 'an unknown system'}; Hearth knows {known}. For a "
        "system that derives from one of them, preflight_other_os: true goes on"
    )


def glibc() -> int:
    """Return the minor version of this machine's glibc 2, or 0 if it has another C library."""
    found = re.fullmatch(r"glibc 2\.(\d+)", os.confstr("CS_GNU_LIBC_VERSION") or "")
    return int(found[1]) if found else 0


def unknown_architecture(machine: str) -> str:
    """Return the finding about a processor without packages, or ''."""
    if machine in ("x86_64", "aarch64"):
        return ""
    return (
        f"its processor is {machine}; the lock files hold packages for x86_64 and aarch64 only. "
        "Leave this machine out of the group 'cluster'"
    )


CUDA = "/usr/local/cuda/bin"
"""Folder of nvcc where NVIDIA's own packages brought it."""

PROBE_HEADERS = """
import os, sys, sysconfig
folder = sysconfig.get_path("include", "posix_prefix")
sys.exit(not os.path.exists(os.path.join(folder, "Python.h")))
"""
"""Code that exits with 0 if the Python that runs it has its headers."""


def has_compiler() -> bool:
    """Return whether Triton finds a C compiler: $CC, gcc or clang."""
    return bool(os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"))


def has_cpp_compiler() -> bool:
    """Return whether torch.compile finds a C++ compiler: $CXX or g++."""
    return bool(os.environ.get("CXX") or shutil.which("g++"))


def nvcc_version() -> str | None:
    """Return the CUDA version that nvcc here compiles for; None without one."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=CUDA)
    if not nvcc:
        return None
    found = re.search(r"release (\d+\.\d+)", output(nvcc, "--version"))
    return found[1] if found else None


def missing_packages(python: Sequence[int], headers: bool, cpp: bool = False) -> list[str]:
    """Return the packages of Debian and Ubuntu that bring what Triton lacks here.

    `python` is the version of the environment's Python, `headers` whether it has its own. With
    `cpp` they bring what torch.compile lacks on a processor.
    """
    if cpp:
        compiler = [] if has_cpp_compiler() else ["g++"]
    else:
        compiler = [] if has_compiler() else ["gcc", "libc6-dev"]
    return compiler + ([] if headers else ["python{}.{}-dev".format(*python)])


def install_command(packages: Sequence[str]) -> str:
    """Return the command that installs these packages."""
    return f"sudo apt-get install {' '.join(packages)}"
