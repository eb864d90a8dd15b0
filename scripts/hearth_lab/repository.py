"""The package repositories that a machine of the lab can reach, as local files.

They hold stand-ins of driver packages under their real names. Versions end in `+standin`, and the
installed files say so too. `distribution` replaces a machine's own apt sources, `nvidia` replaces
NVIDIA's repository, and `later` is that a month later. Each has two driver branches.
"""

from __future__ import annotations

import hashlib
import platform
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hearth_lab import gpu
from hearth_lab.host import built, run

# Path of the repositories in a machine.
PLACE = "/opt/lab/repository"
# Kernel package of a release of Ubuntu, by its code name, and of all others.
_UBUNTU_KERNELS = {
    "jammy": "linux-image-generic-hwe-22.04",
    "noble": "linux-image-generic-hwe-24.04",
    "resolute": "linux-image-generic",
}
_KERNEL = "linux-image-amd64"

_VERSIONS = {
    "distribution": ["580.126.09", "590.48.01"],
    "nvidia": ["580.126.09", "590.48.01"],
    "later": ["580.142.02", "590.48.01"],
}
_FOLDER = f"usr/lib/{platform.machine()}-linux-gnu"

# `modprobe nvidia` runs this, as configured in /usr/lib/modprobe.d.
_LOAD = f"""\
#!/bin/sh
mkdir -p {gpu.LOADED}/nvidia
rm -f {gpu.KEPT}
cat >{gpu.LOADED}/nvidia/version <<TEXT
NVRM version: NVIDIA UNIX{{kind}} Kernel Module for {platform.machine()}  {{version}}  (a stand-in)
TEXT
"""


@dataclass(frozen=True)
class Package:
    """A stand-in: its name, its dependencies, and the files it installs for a driver version.

    `{branch}` in the name and in its dependencies stands for the version's branch. A package with a
    `version` of its own is the same for every driver.
    """

    name: str
    needs: str = ""
    files: Callable[[str], dict[str, str]] = lambda version: {}
    version: str = ""


def _smi(version: str) -> dict[str, str]:
    return {"usr/bin/nvidia-smi": Path(__file__).with_name("nvidia_smi.py").read_text()}


def _library(version: str) -> dict[str, str]:
    return {f"{_FOLDER}/libnvidia-ml.so.{version}": "A stand-in: no library.\n"}


def _module(kind: str) -> Callable[[str], dict[str, str]]:
    def files(version: str) -> dict[str, str]:
        load = "usr/libexec/nvidia-standin/load"
        return {
            load: _LOAD.format(kind=kind, version=version),
            "usr/lib/modprobe.d/nvidia-standin.conf": f"install nvidia /{load}\n",
        }

    return files


def _pinning(version: str) -> dict[str, str]:
    branch = version.partition(".")[0]
    pin = f"Package: *nvidia* cuda-drivers\nPin: version {branch}.*\nPin-Priority: 1000\n"
    return {f"etc/apt/preferences.d/nvidia-driver-pinning-{branch}": pin}


def _nvcc(folder: str, release: str) -> Callable[[str], dict[str, str]]:
    text = f"#!/bin/sh\necho 'Cuda compilation tools, release {release} (a stand-in)'\n"
    return lambda version: {f"{folder}/bin/nvcc": text}


_FROM_NVIDIA = (
    Package("nvidia-driver-pinning-{branch}", files=_pinning),
    Package("libnvidia-ml1", files=_library),
    Package("nvidia-driver-cuda", "libnvidia-ml1, python3", _smi),
    Package("nvidia-kernel-open-dkms", files=_module(" Open")),
    Package("nvidia-kernel-dkms", files=_module("")),
    Package("nvidia-open", "nvidia-driver-cuda, nvidia-kernel-open-dkms"),
    Package("cuda-drivers", "nvidia-driver-cuda, nvidia-kernel-dkms"),
    Package("cuda-toolkit-13-0", files=_nvcc("usr/local/cuda", "13.0"), version="13.0.2"),
)
# Debian's kernel, and Ubuntu's packages with Ubuntu's names.
_FROM_DISTRIBUTION = (
    Package(_KERNEL, version="6.1.0-1"),
    Package("linux-headers-amd64", version="6.1.0-1"),
    Package("nvidia-cuda-toolkit", files=_nvcc("usr", "12.0"), version="12.0.140"),
    *(Package(name, version="6.14.0-37") for name in _UBUNTU_KERNELS.values()),
    Package("libnvidia-compute-{branch}", files=_library),
    Package("nvidia-utils-{branch}", "libnvidia-compute-{branch}, python3", _smi),
    Package("nvidia-headless-no-dkms-{branch}-open", "libnvidia-compute-{branch}"),
    *(
        Package(
            f"linux-modules-nvidia-{{branch}}-open-{name.removeprefix('linux-image-')}",
            files=_module(" Open"),
        )
        for name in _UBUNTU_KERNELS.values()
    ),
)
_CONTENT = {"distribution": _FROM_DISTRIBUTION, "nvidia": _FROM_NVIDIA, "later": _FROM_NVIDIA}


def ensure() -> Path:
    """Return the folder of the repositories, building it if it is missing or its recipe changed."""
    recipe = hashlib.sha256(repr(_VERSIONS).encode())
    for source in (__file__, Path(__file__).with_name("nvidia_smi.py"), gpu.__file__):
        recipe.update(Path(source).read_bytes())

    def build(work: Path) -> None:
        for name, packages in _CONTENT.items():
            folder = work / "top" / name
            versions = _VERSIONS[name]
            _build(
                folder,
                [
                    (each, version)
                    for each in packages
                    for version in (versions[:1] if each.version else versions)
                ],
            )
        run("chmod", "--recursive", "a+rX", work / "top")  # apt reads as a separate user

    return built(f"repository-{recipe.hexdigest()[:12]}", build)


def kernel(repositories: Path, release: str) -> Path:
    """Return the package of the nominal kernel of a release's machines."""
    name = _UBUNTU_KERNELS.get(release, _KERNEL)
    return next((repositories / "distribution").glob(f"{name}_*.deb"))


def _build(folder: Path, packages: list[tuple[Package, str]]) -> None:
    """Build a flat repository of packages for driver versions."""
    folder.mkdir(parents=True)
    index = ""
    for package, version in packages:
        control = _control(package, version)
        file = folder / f"{package.name}_{package.version or version}_all.deb"
        _pack(file, control, package.files(version))
        data = file.read_bytes()
        index += (
            f"{control}Filename: ./{file.name}\nSize: {len(data)}\n"
            f"SHA256: {hashlib.sha256(data).hexdigest()}\n\n"
        )
    (folder / "Packages").write_text(index)
    listed = f" {hashlib.sha256(index.encode()).hexdigest()} {len(index.encode())} Packages\n"
    (folder / "Release").write_text(f"Label: Stand-ins of the lab\nSHA256:\n{listed}")


def _control(package: Package, version: str) -> str:
    branch = version.partition(".")[0]
    name = package.name.format(branch=branch)
    version = package.version or f"{version}-1"
    needs = f"Depends: {package.needs.format(branch=branch)}\n" if package.needs else ""
    return (
        f"Package: {name}\nVersion: {version}+standin\nArchitecture: all\n{needs}"
        "Maintainer: Hearth's lab <lab@example.invalid>\n"
        f"Description: stand-in for {name}\n It installs nothing of the real package.\n"
    )


def _pack(file: Path, control: str, files: dict[str, str]) -> None:
    """Build one package."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "root"
        for name, text in {"DEBIAN/control": control, **files}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if text.startswith("#!") else 0o644)
            if "libnvidia-ml.so." in name:
                (path.parent / "libnvidia-ml.so.1").symlink_to(path.name)
        root.chmod(0o755)
        run("dpkg-deb", "--root-owner-group", "-Znone", "--build", root, file)
