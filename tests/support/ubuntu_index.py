"""Package lists of Ubuntu's archives, cut to what the driver's matrix needs.

Each file in tests/fixtures/ubuntu holds the packages of one pocket: those of the release as it came
out, and its updates with the security fixes. All versions and dependencies are the archive's;
`python -m tests.bench.drivers --fetch` makes them anew.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterable, Iterator

from support.repository import ROOT

FOLDER = ROOT / "tests" / "fixtures" / "ubuntu"
RELEASES = {"22.04": "jammy", "24.04": "noble", "26.04": "resolute"}
POCKETS = ("release", "updates")

# What is installed on a desktop and on a server, besides a kernel and a driver.
_BASE = (
    *("ubuntu-minimal", "ubuntu-standard", "openssh-server", "netplan.io", "initramfs-tools"),
    *("linux-firmware", "intel-microcode", "amd64-microcode", "shim-signed"),
)
SYSTEMS = {
    "server": ("ubuntu-server-minimal", *_BASE),
    "desktop": ("ubuntu-desktop", "gnome-shell", "gdm3", "xserver-xorg", *_BASE),
}

Stanza = dict[str, str]


def stanzas(text: str) -> Iterator[Stanza]:
    """Yield the fields of each package in a package list."""
    for block in text.split("\n\n"):
        fields = (line.partition(": ") for line in block.splitlines() if line[:1].isalpha())
        if found := {name: value for name, _, value in fields}:
            yield found


def written(packages: Iterable[Stanza]) -> str:
    """Return a package list."""
    return "".join(
        "".join(f"{name}: {value}\n" for name, value in package.items()) + "\n"
        for package in packages
    )


def index(version: str, pocket: str) -> str:
    """Return the committed package list of a pocket."""
    return lzma.decompress((FOLDER / f"{version}-{pocket}.xz").read_bytes()).decode()


def made() -> str:
    """Return the date of the package lists."""
    return (FOLDER / "date").read_text().strip()


def names_of(relation: str) -> list[str]:
    """Return the package names in a relation field such as Depends, all alternatives."""
    return re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9.+-]+)", relation)
