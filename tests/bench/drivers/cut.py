"""Cut the package lists of Ubuntu's archives to what the driver's matrix needs.

apt itself fetches and verifies the lists, in a folder of its own. Only the fields that its solver
reads are kept.
"""

from __future__ import annotations

import lzma
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from support.ubuntu_index import (
    FOLDER,
    POCKETS,
    RELEASES,
    SYSTEMS,
    Stanza,
    names_of,
    stanzas,
    written,
)
from support.ubuntu_matrix import KERNELS

from hearth_lab.image import archive
from tests.bench.lab import CommandFailed

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
        raise CommandFailed(f"{' '.join(command)}: {done.stderr.strip()}")
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
    for kernel in {each.release for kernels in KERNELS[version].values() for each in kernels}:
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
        print(f"bench: {path.name}: {len(kept)} packages, {path.stat().st_size >> 10} kB")


def _trimmed(package: Stanza, concerned: set[str]) -> Stanza:
    """Return a package without recommendations and conflicts that concern none of the others."""
    kept = dict(package)
    for field in ("Recommends", "Conflicts", "Breaks", "Replaces"):
        groups = kept.pop(field, "").split(",")
        if found := [group.strip() for group in groups if concerned.intersection(names_of(group))]:
            kept[field] = ", ".join(found)
    return kept


def fetch() -> None:
    """Make the committed package lists anew."""
    for version in RELEASES:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)  # apt fetches as a user of its own
            _cut(version, Path(folder))
    (FOLDER / "date").write_text(f"{datetime.now(UTC):%Y-%m-%d}\n")
