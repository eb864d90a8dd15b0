"""The base image of all machines: an installed Debian or Ubuntu with a login."""

from __future__ import annotations

import hashlib
import os
import platform
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hearth_lab import gpu, plan, repository, slurm
from hearth_lab.host import REPOSITORY, built, run, signs_of_life
from hearth_lab.plan import LabError

# Read-only mount point of this computer's training packages (.venv) in a machine: the lab's
# machines reach no package index.
PACKAGES = "/opt/lab/packages"
# Read-only mount point of this computer's models.
MODELS = "/opt/lab/models"
# The Python of this computer's release, which the training packages are built for.
PYTHON = "/opt/lab/python"
_VENV = "/opt/lab/venv"
_DEBS = (
    "apt,systemd,systemd-sysv,udev,dbus,libpam-systemd,openssh-server,python3,python3-venv,sudo,"
    "netplan.io,network-manager,iproute2,iputils-ping,procps,pciutils,kmod,ca-certificates,"
    "systemd-timesyncd,python3-apt,ufw,nftables"
)

_HOOK = f"""
useradd --create-home --shell /bin/bash --groups sudo {plan.USER}
echo {plan.USER}:{plan.PASSWORD} | chpasswd
mkdir -p {PACKAGES} {MODELS}
chown {plan.USER}: {MODELS}
ln -s /usr/bin/{{python}} {PYTHON}
{PYTHON} -m venv --without-pip {_VENV}
for folder in {_VENV}/lib/python3*/site-packages; do echo {PACKAGES} >$folder/lab.pth; done
rm -f /etc/ssh/ssh_host_*
systemctl --quiet enable lab-keys.service lab-seal.service lab-gpu.service
dpkg --install /root/*.deb >/dev/null
rm /root/*.deb
rm -f /etc/apt/sources.list.d/*
echo "deb [trusted=yes] file:{repository.PLACE}/distribution ./" >/etc/apt/sources.list
systemctl --quiet mask systemd-sysctl.service systemd-binfmt.service
systemctl --quiet disable NetworkManager.service NetworkManager-dispatcher.service \\
    NetworkManager-wait-online.service
"""

_FILES = {
    "etc/systemd/system/lab-gpu.service": gpu.UNIT,
    # Each machine generates its own host keys, as an installer would.
    "etc/systemd/system/lab-keys.service": """\
[Unit]
Description=SSH host keys of this machine
Before=ssh.service
ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key
[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -A
[Install]
WantedBy=multi-user.target
""",
    # A machine's /proc/sys is writable because netplan needs udev, and udev needs a writable /sys.
    # Everything in it outside the network belongs to the host, so it is sealed. (--rbind keeps the
    # machine's own boot id, which is mounted below.)
    "etc/systemd/system/lab-seal.service": """\
[Unit]
Description=Kernel settings of the host are not this machine's to change
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'for part in debug dev fs kernel vm; do \\
    [ -d /proc/sys/$part ] || continue; \\
    mount --rbind /proc/sys/$part /proc/sys/$part; \\
    mount -o remount,ro,bind /proc/sys/$part; done'
[Install]
WantedBy=sysinit.target
""",
    # NetworkManager ignores virtual cards; the lab's virtual cards must count as real ones.
    "etc/udev/rules.d/90-lab-cards.rules": """\
SUBSYSTEM=="net", ATTR{address}=="02:4c:41:42:*", ENV{NM_UNMANAGED}="0"
""",
    # A machine sees the host's devices; it may announce only its own network cards.
    "etc/systemd/system/systemd-udev-trigger.service.d/lab.conf": """\
[Service]
ExecStart=
ExecStart=-/bin/udevadm trigger --type=devices --action=add --subsystem-match=net
""",
}


@dataclass(frozen=True)
class _Distribution:
    """Where a computer of another distribution gets its packages, and the key that signs them."""

    releases: tuple[str, ...]
    sources: tuple[str, ...]
    keyring: str
    keyring_sha256: str


_DISTRIBUTIONS = {
    "debian": _Distribution(
        ("bookworm", "trixie"),
        (
            "http://deb.debian.org/debian {release} main",
            "http://deb.debian.org/debian {release}-updates main",
            "http://deb.debian.org/debian-security {release}-security main",
        ),
        "http://deb.debian.org/debian/pool/main/d/debian-archive-keyring/"
        "debian-archive-keyring_2023.3+deb12u2_all.deb",
        "f699e2f88dca05212f2a452b58475f2993cb6993dfbafb1d0205a3291eb8b4b8",
    ),
    "ubuntu": _Distribution(
        ("jammy", "noble", "resolute"),
        (
            "http://archive.ubuntu.com/ubuntu {release} main universe",
            "http://archive.ubuntu.com/ubuntu {release}-updates main universe",
            "http://security.ubuntu.com/ubuntu {release}-security main universe",
        ),
        "http://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring/"
        "ubuntu-keyring_2023.11.28.1_all.deb",
        "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8",
    ),
}


def own_release() -> str:
    """Return the code name of this computer's release."""
    name = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    if not name:
        raise LabError("/etc/os-release names no release; the lab needs Debian or Ubuntu.")
    return name


def _sources(release: str, work: Path) -> list[str]:
    """Return the apt sources of a release; none if this computer's own distribution has it.

    Raises LabError if no distribution is known to have the release.
    """
    own = platform.freedesktop_os_release().get("ID", "")
    having = [name for name, each in _DISTRIBUTIONS.items() if release in each.releases]
    if release == own_release() or own in having:
        return []
    if not having:
        known = ", ".join(name for each in _DISTRIBUTIONS.values() for name in each.releases)
        raise LabError(f"--release {release}: the lab knows {known}.")
    return archive(having[0], release, work)


def archive(name: str, release: str, work: Path) -> list[str]:
    """Return the apt sources of a distribution's archive; its key is fetched into `work`."""
    distribution = _DISTRIBUTIONS[name]
    try:
        with urllib.request.urlopen(distribution.keyring, timeout=60) as answer:
            package = answer.read()
    except OSError as error:
        raise LabError(f"{distribution.keyring} cannot be fetched ({error}).") from None
    if hashlib.sha256(package).hexdigest() != distribution.keyring_sha256:
        raise LabError(f"{distribution.keyring} has another checksum than it should.")
    (work / "keyring.deb").write_bytes(package)
    run("dpkg-deb", "--extract", work / "keyring.deb", work / "keyring")
    key = work / "keyring" / f"usr/share/keyrings/{name}-archive-keyring.gpg"
    return [
        f"deb [signed-by={key}] {each.format(release=release)}" for each in distribution.sources
    ]


def ensure(release: str, say: Callable[[str], None] = print, *, with_slurm: bool = False) -> Path:
    """Return the base image's folder of a release; build it if it or its recipe is new.

    Raises LabError if the lab does not know the release or its packages cannot be had.
    """
    own = own_release()
    python, lent = "python3", []
    if release != own:
        # As conda would, lend the Python that the training packages are built for.
        base = ensure(own, say)
        library = next((base / "usr" / "lib").glob("python3.*"))
        python = library.name
        lent = [
            f"--customize-hook=copy-in {base}/usr/bin/{python} /usr/bin",
            f"--customize-hook=copy-in {library} /usr/lib",
            f"--customize-hook=copy-in {base}/usr/share/python-wheels /usr/share",
        ]
    hook_text = _HOOK.format(python=python)
    kernel = repository.kernel(repository.ensure(), release)
    debs, contents, kind = _DEBS, _FILES, "image"
    if with_slurm:
        debs, contents, kind = f"{_DEBS},{slurm.DEBS}", _FILES | slurm.FILES, "slurm"
    recipe = repr((release, own, debs, kernel.name, hook_text, sorted(contents.items())))

    def build(work: Path) -> None:
        say(f"Building the base image ({kind}-{release}, once; up to 5 minutes) in {work.parent}")
        files, hook = work / "files", work / "hook"
        for name, text in contents.items():
            path = files / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        hook.write_text(f"#!/bin/sh\nset -e\nchroot \"$1\" /bin/sh -ec '{hook_text}'\n")
        hook.chmod(0o755)
        with signs_of_life("building the base image", say):
            run(
                "mmdebstrap",
                "--variant=minbase",
                f"--include={debs}",
                f"--customize-hook=copy-in {files}/etc /",
                f"--customize-hook=copy-in {kernel} /root",
                *lent,
                f"--customize-hook={hook}",
                release,
                work / "top",
                *_sources(release, work),
                timeout=900,
            )

    return built(f"{kind}-{release}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}", build)


def shared(image: Path) -> dict[str, Path]:
    """Return this computer's folders that the machines read, by their mount point."""
    found = {PACKAGES: packages(image), MODELS: models(), repository.PLACE: repository.ensure()}
    return {there: ours for there, ours in found.items() if ours is not None}


def packages(image: Path) -> Path | None:
    """Return this computer's training packages, if its .venv fits the machines' Python."""
    for folder in (image / _VENV.lstrip("/") / "lib").glob("python3*"):
        ours = REPOSITORY / ".venv" / "lib" / folder.name / "site-packages"
        if ours.is_dir():
            return ours
    return None


def models() -> Path | None:
    """Return the folder of this computer's fetched models, if there are any."""
    home = os.path.expanduser(f"~{os.environ.get('SUDO_USER', '')}")
    cached = os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache"
    ours = Path(os.environ.get("HEARTH_MODELS") or f"{cached}/hearth/models")
    return ours if ours.is_dir() else None
