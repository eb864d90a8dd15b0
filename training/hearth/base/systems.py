"""Operating systems and processors that a node can have. Pure.

Standard library only: modules ship this file to machines that have no Hearth yet.
"""

from __future__ import annotations

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


def unknown_architecture(machine: str) -> str:
    """Return the finding about a processor without packages, or ''."""
    if machine in ("x86_64", "aarch64"):
        return ""
    return (
        f"its processor is {machine}; the lock files hold packages for x86_64 and aarch64 only. "
        "Leave this machine out of the group 'cluster'"
    )
