"""Cut the package lists of Ubuntu's archives to what the driver's matrix needs.

    python -m tests.support.ubuntu_index        makes tests/fixtures/ubuntu/*.xz anew

Each file holds the packages of one pocket: those of the release as it came out, and its updates
with the security fixes. apt itself fetches and verifies the lists, in a folder of its own; all
versions and dependencies are the archive's. Only the fields that apt's solver reads are kept.
"""

from __future__ import annotations

import lzma
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from hearth_lab.image import archive
from support.house import ROOT

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

# Older kernels that the cases of the matrix have installed, besides the newest of each flavour.
KERNELS = {
    "22.04": (
        *("5.15.0-25-generic", "5.15.0-119-generic", "5.15.0-24-lowlatency"),
        *("6.8.0-40-generic", "6.8.0-124-generic", "6.5.0-1024-oem", "6.8.0-60-lowlatency"),
    ),
    "24.04": (
        *("6.8.0-31-generic", "6.8.0-41-generic", "6.17.0-14-generic", "6.11.0-29-generic"),
        *("6.14.0-37-generic", "6.11.0-1016-lowlatency", "6.11.0-1027-oem", "6.8.0-31-lowlatency"),
        *("6.17.0-1020-oem", "7.0.0-28-generic"),
    ),
    "26.04": ("7.0.0-14-generic", "7.0.0-28-generic", "7.0.0-1005-oem"),
}

_FLAVOURS = r"(generic|virtual|lowlatency|oem|realtime)(-hwe)?(-\d+\.\d+[a-d]?)?"
_ROOTS = re.compile(
    rf"linux-(image-|headers-|modules-nvidia-(535|570|580|590|595)(-open)?-)?{_FLAVOURS}"
    r"|(nvidia-(driver|dkms|headless-no-dkms)|nvidia-utils)-(535|570|580|590|595)(-open)?"
    r"|nvidia-(prime|settings)|lowlatency-kernel"
)
# The modules of these branches, of each kernel in the index.
_BRANCHES = ("580", "580-open", "595", "595-open")
_FIELDS = (
    *("Package", "Version", "Architecture", "Multi-Arch", "Essential", "Provides", "Pre-Depends"),
    *("Depends", "Recommends", "Conflicts", "Breaks", "Replaces"),
)

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


def names_of(relation: str) -> list[str]:
    """Return the package names in a relation field such as Depends, all alternatives."""
    return re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9.+-]+)", relation)


def _apt(root: Path, *command: str) -> str:
    """Run one of apt's programs in a folder of its own and return its output."""
    options = {
        "Dir::State": root,
        "Dir::State::lists": root / "lists",
        "Dir::State::status": root / "status",
        "Dir::Cache": root,
        "Dir::Etc::sourcelist": root / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "Acquire::Languages": "none",
    }
    program, *words = command
    given = [f"-o{name}={value}" for name, value in options.items()]
    done = subprocess.run([program, *given, *words], capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _whole(release: str, root: Path) -> dict[str, list[Stanza]]:
    """Return all packages of a release by pocket, fetched with apt into `root`."""
    for folder in ("lists/partial", "archives/partial"):
        (root / folder).mkdir(parents=True)
    (root / "status").touch()
    lines = [
        line.replace("deb [", "deb [arch=amd64 ").replace(" universe", " restricted universe")
        for line in archive("ubuntu", release, root)
    ]
    (root / "sources.list").write_text("".join(f"{line}\n" for line in lines))
    _apt(root, "apt-get", "update")
    found: dict[str, list[Stanza]] = {pocket: [] for pocket in POCKETS}
    for path in sorted((root / "lists").glob("*_Packages*")):
        text = _apt(root, "/usr/lib/apt/apt-helper", "cat-file", str(path))
        pocket = "release" if f"_{release}_" in path.name else "updates"
        found[pocket] += [
            {name: each[name] for name in _FIELDS if name in each} for each in stanzas(text)
        ]
    return found


def _closure(version: str, packages: Iterable[Stanza]) -> set[str]:
    """Return the names that the cases need, with all that these depend on.

    Of alternatives the first one counts.
    """
    by_name: dict[str, list[Stanza]] = {}
    providers: dict[str, list[str]] = {}
    for package in packages:
        by_name.setdefault(package["Package"], []).append(package)
        for name in names_of(package.get("Provides", "")):
            providers.setdefault(name, []).append(package["Package"])
    wanted: set[str] = set()
    waiting = [name for name in by_name if _ROOTS.fullmatch(name)]
    waiting += [name for names in SYSTEMS.values() for name in names]
    for kernel in KERNELS[version]:
        waiting += [f"linux-{what}-{kernel}" for what in ("image", "headers")]
    while waiting:
        name = waiting.pop()
        if name in wanted or name not in by_name:
            continue
        wanted.add(name)
        if kernel := re.fullmatch(r"linux-image-(\d.*)", name):
            kinds = [f"nvidia-{branch}" for branch in _BRANCHES]
            waiting += [f"linux-modules-{kind}-{kernel[1]}" for kind in ("extra", *kinds)]
        for package in by_name[name]:
            for field in ("Pre-Depends", "Depends"):
                for group in filter(None, package.get(field, "").split(",")):
                    names = names_of(group)
                    real = [each for each in names if each in by_name]
                    waiting += real[:1] or sorted(providers.get(names[0], ()))[:1]
    return wanted


def _cut(version: str, root: Path) -> None:
    """Write the files of a release."""
    whole = _whole(RELEASES[version], root)
    both = [each for packages in whole.values() for each in packages]
    wanted = _closure(version, both)
    concerned = wanted | {
        name
        for each in both
        if each["Package"] in wanted
        for name in names_of(each.get("Provides", ""))
    }
    for pocket, packages in whole.items():
        unique = {(each["Package"], each["Version"]): each for each in packages}
        kept = [_trimmed(each, concerned) for each in unique.values() if each["Package"] in wanted]
        kept.sort(key=lambda package: (package["Package"], package["Version"]))
        path = FOLDER / f"{version}-{pocket}.xz"
        path.write_bytes(lzma.compress(written(kept).encode(), preset=9 | lzma.PRESET_EXTREME))
        print(f"{path.relative_to(ROOT)}: {len(kept)} packages, {path.stat().st_size >> 10} kB")


def _trimmed(package: Stanza, concerned: set[str]) -> Stanza:
    """Return a package without recommendations and conflicts that concern none of the others."""
    kept = dict(package)
    for field in ("Recommends", "Conflicts", "Breaks", "Replaces"):
        groups = kept.pop(field, "").split(",")
        if found := [group.strip() for group in groups if concerned.intersection(names_of(group))]:
            kept[field] = ", ".join(found)
    return kept


def main() -> None:
    """Make the files anew, or those of the releases named on the command line."""
    for version in sys.argv[1:] or RELEASES:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)  # apt fetches as a user of its own
            _cut(version, Path(folder))


if __name__ == "__main__":
    main()
