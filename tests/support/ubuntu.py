"""Ubuntu machines that apt itself works on: their packages, in a folder of their own.

The package lists are those of the real archives (support/ubuntu_index.py). The installed ones are
what apt installs on an empty system; older kernels and drivers than the archive still has are
written after the newest ones.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ansible.module_utils.hearth_node.driver.apt import Apt
from ansible.module_utils.hearth_node.driver.choice import booted

from support.ubuntu_index import POCKETS, SYSTEMS, Stanza, index, stanzas, written

_STEP = re.compile(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", re.MULTILINE)


def options(values: Mapping[str, object]) -> list[str]:
    """Return apt's configuration as options of its programs."""
    return [f"-o{name}={value}" for name, value in values.items()]


class Archive:
    """The archive of a release: the package lists of its pockets, and apt that reads them."""

    def __init__(self, version: str, folder: Path) -> None:
        self.version, self.folder = version, folder
        self.packages: dict[tuple[str, str], Stanza] = {}
        for pocket in POCKETS:
            place = folder / pocket
            place.mkdir(parents=True)
            found = list(stanzas(index(version, pocket)))
            self.packages |= {(each["Package"], each["Version"]): each for each in found}
            # A version that names no file is none that apt would install.
            named = [each | {"Filename": "none.deb", "Size": "1"} for each in found]
            (place / "Packages").write_text(written(named))
            (folder / f"lists-{pocket}" / "partial").mkdir(parents=True)
        (folder / "cache" / "archives" / "partial").mkdir(parents=True)
        # The updates belong to the release; without them it is as it came out.
        for pocket, read in (("release", POCKETS[:1]), ("updates", POCKETS)):
            lines = [f"deb [trusted=yes] file:{folder / each} ./\n" for each in read]
            (folder / f"{pocket}.list").write_text("".join(lines))
            self.run("apt-get", "update", pocket=pocket)

    def values(self, pocket: str, status: str = "/dev/null", cache: str = "") -> dict[str, object]:
        """Return the configuration that keeps apt's programs within the archive."""
        return {
            "Dir::State": self.folder,
            "Dir::State::lists": self.folder / f"lists-{pocket}",
            "Dir::State::status": status,
            "Dir::Cache": self.folder / "cache",
            "Dir::Cache::srcpkgcache": self.folder / f"{pocket}.bin",
            "Dir::Cache::pkgcache": cache,
            "Dir::Etc::sourcelist": self.folder / f"{pocket}.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::Etc::parts": "/dev/null",
            "Dir::Log": self.folder,
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Debug::NoLocking": "true",
        }

    def run(
        self, program: str, *words: str, pocket: str = "updates", status: str = "/dev/null"
    ) -> str:
        """Run one of apt's programs over a system, by default an empty one; return its output."""
        command = [program, *options(self.values(pocket, status)), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
        return done.stdout

    def solved(
        self, names: Iterable[str], pocket: str = "updates", status: str = "/dev/null"
    ) -> dict[str, Stanza]:
        """Return by name the packages that apt installs or upgrades on a system for these."""
        words = ("--simulate", "--yes", "--no-install-recommends", "install", *names)
        steps = _STEP.findall(self.run("apt-get", *words, pocket=pocket, status=status))
        return {name: self.packages[name, version] for name, version in steps}

    @cached_property
    def systems(self) -> dict[tuple[str, str], dict[str, Stanza]]:
        """The packages of each kind of system without a kernel, by kind and pocket."""
        return {
            (kind, pocket): self.solved(names, pocket)
            for kind, names in SYSTEMS.items()
            for pocket in POCKETS
        }

    def has(self, name: str) -> bool:
        """Return whether there is a package of this name."""
        return any(name == each for each, _ in self.packages)


@dataclass(frozen=True)
class Kernel:
    """A kernel and the flavour that follows it; without one it was installed alone.

    `whole`: the flavour's package of image and headers is there, too, as an installer leaves it.
    """

    release: str
    flavour: str = ""
    whole: bool = True


@dataclass(frozen=True)
class Driver:
    """An installed driver of the archive's; `built`: DKMS builds its module on the machine."""

    version: str
    is_open: bool = False
    built: bool = False

    @property
    def branch(self) -> str:
        """The first part of the version."""
        return self.version.partition(".")[0]


class Computer:
    """A machine of an archive: a system with kernels, and perhaps a driver.

    `updated`: all its packages but the kernels and the driver are the newest. `held` are packages
    that its owner holds back.
    """

    def __init__(
        self,
        archive: Archive,
        folder: Path,
        kind: str,
        kernels: Sequence[Kernel],
        driver: Driver | None = None,
        *,
        updated: bool = False,
        held: Iterable[str] = (),
    ) -> None:
        self._archive, self._status = archive, folder / "status"
        self.packages = dict(archive.systems[kind, "updates" if updated else "release"])
        folder.mkdir(parents=True)
        for kernel in kernels:
            self._add_kernel(kernel)
        if driver:
            self._add_driver(driver, kernels, desktop=kind == "desktop")
        self._write(held)

    @property
    def apt(self) -> Apt:
        """apt and dpkg on this machine."""
        return self._apt

    @property
    def configuration(self) -> Path:
        """A file for APT_CONFIG that points apt's programs at this machine."""
        path = self._status.with_name("apt.conf")
        path.write_text("".join(f'{name} "{value}";\n' for name, value in self._values.items()))
        return path

    def check(self) -> None:
        """Have apt confirm that the installed packages fit together."""
        self._archive.run("apt-get", "check", status=str(self._status))

    def carry_out(self, words: Iterable[str]) -> None:
        """Install and remove packages as `apt-get install` with these words does."""
        done = self._apt.simulate(tuple(words))
        found = self._solved(words)
        kept = {name: each for name, each in self.packages.items() if name not in done.removes}
        self.packages = kept | found
        self._write()

    def _write(self, held: Iterable[str] = ()) -> None:
        """Write dpkg's list of installed packages."""
        states = dict.fromkeys(self.packages, "install") | dict.fromkeys(held, "hold")
        about = {"Maintainer": "x", "Description": "x"}
        packages = (
            about | {"Status": f"{states[name]} ok installed"} | package
            for name, package in self.packages.items()
        )
        self._status.write_text(written(packages))
        cache = str(self._status.with_name("cache.bin"))
        self._values = self._archive.values("updates", str(self._status), cache)
        self._apt = Apt(options(self._values), str(self._status.parent))

    def _solved(self, names: Iterable[str]) -> dict[str, Stanza]:
        """Return the packages that apt installs or upgrades on this machine for these."""
        self._write()
        return self._archive.solved(names, status=str(self._status))

    def _put(self, name: str, version: str, *depends: str) -> None:
        """Install a package of a flavour at a version that the archive may have no more."""
        if (name, version) in self._archive.packages:
            self.packages |= self._solved([f"{name}={version}"])
            return
        fields = {"Package": name, "Version": version, "Architecture": "amd64"}
        self.packages[name] = fields | {"Depends": ", ".join(depends)}

    def _add_kernel(self, kernel: Kernel) -> None:
        """Install a kernel and the packages of its flavour, at its version."""
        image, extra, headers = (
            f"linux-{what}-{kernel.release}" for what in ("image", "modules-extra", "headers")
        )
        virtual = kernel.flavour.startswith("virtual")
        images = [image] if virtual or not self._archive.has(extra) else [image, extra]
        self.packages |= self._solved([*images, *([headers] if kernel.whole else [])])
        version = self.packages[image]["Version"]
        if not kernel.flavour:
            return
        self._put(f"linux-image-{kernel.flavour}", version, *images)
        if kernel.whole:
            self._put(f"linux-headers-{kernel.flavour}", version, headers)
            both = (f"linux-{what}-{kernel.flavour} (= {version})" for what in ("image", "headers"))
            self._put(f"linux-{kernel.flavour}", version, *both)

    def _add_driver(self, driver: Driver, kernels: Sequence[Kernel], *, desktop: bool) -> None:
        """Install an old version of a driver, written after the newest one of branch 580."""
        kind = "580-open" if driver.is_open else "580"
        space = f"nvidia-driver-{kind}" if desktop else f"nvidia-headless-no-dkms-{kind}"
        builder = f"nvidia-dkms-{kind}"
        found = self._solved([space, "nvidia-utils-580", builder])
        newest = found["nvidia-kernel-common-580"]["Version"]
        own = [each for name, each in found.items() if re.search(r"nvidia.*-580\b", name)]
        self.packages |= {name: each for name, each in found.items() if each not in own}
        if not driver.built:
            own = [each for each in own if each["Package"] != builder]
            own += [each for kernel in kernels for each in self._prebuilt(kind, kernel, newest)]
        text = written(own).replace(newest.partition("-")[0], driver.version)
        text = re.sub(r"-580(?=-|\s|,|:|$)", f"-{driver.branch}", text, flags=re.MULTILINE)
        self.packages |= {each["Package"]: each for each in stanzas(text)}

    def _prebuilt(self, kind: str, kernel: Kernel, driver: str) -> Iterator[Stanza]:
        """Yield the packages that bring a kernel and its flavour the modules of a driver."""
        version = self.packages[f"linux-image-{kernel.release}"]["Version"]
        point = driver.partition("-")[0]
        module = f"linux-modules-nvidia-{kind}-{kernel.release}"
        fields = {"Version": version, "Architecture": "amd64"}
        common = f"nvidia-kernel-common-580 (>= {point})"
        yield fields | {
            "Package": module,
            "Depends": f"linux-image-{kernel.release}, {common}, "
            f"nvidia-kernel-common-580 (<= {point}-1)",
        }
        if kernel.flavour:
            yield fields | {
                "Package": f"linux-modules-nvidia-{kind}-{booted(kernel.flavour)}",
                "Depends": f"{module} (= {version}), {common}",
                "Provides": f"nvidia-dkms-{kind} (= {driver}), nvidia-prebuilt-kernel",
            }
