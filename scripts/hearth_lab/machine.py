"""One machine: its disk, its power switch and its share of the processor.

The disk is an overlay over the base image and survives a power cut. The machine's processes run in
separate control groups, so that all of them can be found and ended, even after a crash.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from hearth_lab import gpu, plan
from hearth_lab.host import OURS, STATE, cache, succeeds
from hearth_lab.network import inside, namespace_of
from hearth_lab.plan import LabError

_CGROUPS = Path("/sys/fs/cgroup")
# A fifth of the kernel's default period (0.1 s). A machine that used up its share pauses until the
# next period; with the default, a slow machine would pause unrealistically long.
_PERIOD_US = 20_000
# What one process or group weighs in control groups of version 1 and 2.
_FIRST_WEIGHT, _SECOND_WEIGHT = 1024, 100

# The overlay is mounted in a mount namespace that ends with the machine, so it never appears in the
# computer's own mount table.
# nspawn exits with 133 if the machine was restarted; its network card then loses its settings, as a
# real one does.
_BOOT = """
mount -t overlay overlay -o "$1" "$2" || exit
card=$3
shift 3
while "$@"; [ $? -eq 133 ]; do
    ip address flush dev "$card"
    ip link set "$card" down
done
"""

# Network configuration below /etc that the installer would write, by renderer (mode 0600).
_SERVER = """\
# What the installer wrote.
network:
  version: 2
  ethernets:
    {card}:
      dhcp4: true
"""
_DESKTOP = """\
# Let NetworkManager manage all devices on this system
network:
  version: 2
  renderer: NetworkManager
"""
_PROFILE = """\
[connection]
id=Wired connection 1
uuid={uuid}
type=ethernet
interface-name={card}

[ethernet]

[ipv4]
method=auto

[ipv6]
addr-gen-mode=stable-privacy
method=auto
"""
_NETPLAN = "netplan/00-installer-config.yaml"
_CONFIGURATIONS = {
    "networkd": {_NETPLAN: _SERVER},
    "netplan-nm": {_NETPLAN: _SERVER.replace("2\n", "2\n  renderer: NetworkManager\n")},
    "keyfile": {
        "netplan/01-network-manager-all.yaml": _DESKTOP,
        "NetworkManager/system-connections/Wired connection 1.nmconnection": _PROFILE,
    },
}
_HOSTS = """\
127.0.0.1 localhost
127.0.1.1 {name}

::1 ip6-localhost ip6-loopback
"""


def disk(node: plan.LabNode) -> Path:
    """Return the folder of the machine's disk."""
    return cache() / "disks" / node.name


def install(node: plan.LabNode) -> None:
    """Create a fresh disk for a machine that is off."""
    shutil.rmtree(disk(node), ignore_errors=True)
    for name in ("upper", "work", "root"):
        (disk(node) / name).mkdir(parents=True)
    etc = disk(node) / "upper" / "etc"
    files = {
        "hostname": node.name + "\n",
        "hosts": _HOSTS.format(name=node.name),
        "machine-id": uuid.uuid4().hex + "\n",
        "resolv.conf": f"nameserver {plan.ROUTER}\n",
    }
    network = {
        name: text.format(card=node.card, uuid=uuid.uuid4())
        for name, text in _CONFIGURATIONS[node.renderer].items()
    }
    for name, text in (files | network).items():
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        (etc / name).write_text(text)
    for name in network:
        (etc / name).chmod(0o600)
    if node.renderer != "networkd":
        enabled = etc / "systemd/system/multi-user.target.wants/NetworkManager.service"
        enabled.parent.mkdir(parents=True)
        enabled.symlink_to("/lib/systemd/system/NetworkManager.service")
    gpu.install(node, disk(node) / "upper")


def shared_home(image: Path) -> Path:
    """Return the folder that is the user's home on all machines, made as the image has it."""
    folder = cache() / "disks" / "home"
    if not folder.exists():
        shutil.copytree(image / "home" / plan.USER, folder, symlinks=True)
        owner = (image / "home" / plan.USER).stat()
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    return folder


def power_on(
    node: plan.LabNode, image: Path, shared: Mapping[str, Path], homes: Mapping[str, Path]
) -> None:
    """Start booting a machine that is off and whose network namespace exists.

    By their mount point, `shared` are this computer's folders that it may read, and `homes` those
    that it may write.
    """
    home = disk(node)
    layers = f"lowerdir={image},upperdir={home / 'upper'},workdir={home / 'work'}"
    command: list[str | Path] = [
        # Start nspawn inside the namespace, since /sys shows the network of the mounting process.
        *inside(namespace_of(node)),
        *("unshare", "--mount", "--propagation=private", "--"),
        *("sh", "-c", _BOOT, "sh", layers, home / "root", node.card),
        *("systemd-nspawn", "--directory", home / "root", "--boot", "--console=passive"),
        *("--machine", _known_as(node), "--hostname", node.name),
        *("--keep-unit", "--register=no", "--settings=no", "--link-journal=no"),
        *("--resolv-conf=off", "--timezone=off"),
        *(f"--network-namespace-path={namespace_of(node)}", "--capability=CAP_NET_ADMIN"),
        *(f"--bind-ro={ours}:{there}" for there, ours in shared.items()),
        *(f"--bind={ours}:{there}" for there, ours in homes.items()),
    ]
    groups = _make_groups(node)

    def enter() -> None:
        for group in groups:
            (group / "cgroup.procs").write_text("0")

    environment = os.environ | {
        # udev needs a writable /sys, and netplan does nothing without udev.
        "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "1",
        # systemd from version 256 on (Debian 13) refuses to boot with control groups of version 1.
        "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
    }
    with (STATE / f"{node.name}.log").open("w") as log:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
            preexec_fn=enter,
        )


def power_off(node: plan.LabNode) -> None:
    """Stop a machine as if unplugged, without a shutdown. Does nothing if it is off."""
    end = time.monotonic() + 20
    while found := processes(node):
        first = _first(found)
        for pid in [first] if first else found:  # the machine ends with its first process
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            raise LabError(f"{node.name}: processes do not end: {found}.")
        time.sleep(0.05)
    _remove_groups(node)
    for left in (Path("/run/systemd/nspawn/propagate"), Path("/run/systemd/nspawn/unix-export")):
        with suppress(OSError):
            (left / _known_as(node)).rmdir()


def _known_as(node: plan.LabNode) -> str:
    """Return a name that is unique among all labs on this computer."""
    return f"{OURS}-{node.name}"


def is_on(node: plan.LabNode) -> bool:
    """Return whether any process of the machine runs."""
    return bool(processes(node))


def is_booted(node: plan.LabNode) -> bool:
    """Return whether the machine's systemd has finished booting."""
    console = within(node)
    return bool(console) and succeeds(
        [*console, "systemctl", "is-active", "--quiet", "multi-user.target"]
    )


def within(node: plan.LabNode) -> list[str]:
    """Return the command prefix that runs a command as root on a running machine.

    It works without a network. The result is empty for a machine that is off.
    """
    first = _first(processes(node))
    return [] if first is None else ["nsenter", f"--target={first}", "--all", "--"]


def share(node: plan.LabNode, cores: float | None) -> None:
    """Limit a machine to `cores` cores, or give it all of them."""
    quota = None if cores is None else max(1000, int(cores * _PERIOD_US))
    first_version = _CGROUPS / "cpu" / OURS / node.name / "cpu.cfs_quota_us"
    if first_version.exists():
        first_version.with_name("cpu.cfs_period_us").write_text(str(_PERIOD_US))
        first_version.write_text(str(-1 if quota is None else quota))
    else:
        second = _CGROUPS / OURS / node.name / "cpu.max"
        second.write_text(f"{'max' if quota is None else quota} {_PERIOD_US}")


def give_memory(node: plan.LabNode, gib: float | None) -> None:
    """Limit a machine to `gib` GiB of memory, its files in the cache included, or lift the limit.

    Raises LabError if it cannot do with so little.
    """
    size = "max" if gib is None else str(int(gib * 2**30))
    first_version = _CGROUPS / "memory" / OURS / node.name / "memory.limit_in_bytes"
    second = _CGROUPS / OURS / node.name / "memory.max"
    try:
        if first_version.exists():
            first_version.write_text(size.replace("max", "-1"))
        else:
            second.write_text(size)
    except OSError as error:
        raise LabError(f"{node.name} uses more than {gib:g} GiB: {error.strerror}.") from None


def log(node: plan.LabNode) -> str:
    """Return the last lines of the machine's start log on this computer."""
    with suppress(OSError):
        return "\n".join((STATE / f"{node.name}.log").read_text().strip().splitlines()[-8:])
    return ""


def forget(nodes: list[plan.LabNode]) -> None:
    """Remove the disks and control groups of machines that are off."""
    shutil.rmtree(cache() / "disks", ignore_errors=True)
    for node in nodes:
        _remove_groups(node)
    for top in _tops():
        with suppress(OSError):
            top.rmdir()


def _tops() -> list[Path]:
    """Return the lab's control group in each hierarchy it uses: its limits', and systemd's own."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS / OURS]
    return [
        _CGROUPS / name / OURS
        for name in ("cpu", "memory", "systemd", "unified")
        if (_CGROUPS / name).is_dir()
    ]


def _make_groups(node: plan.LabNode) -> list[Path]:
    groups = [top / node.name for top in _tops()]
    for group in groups:
        group.mkdir(parents=True, exist_ok=True)
    second = _CGROUPS / OURS
    if (_CGROUPS / "cgroup.controllers").exists():
        for folder in (_CGROUPS, second):
            (folder / "cgroup.subtree_control").write_text("+cpu +memory")
    # By default the lab as a whole would weigh as one process of this computer.
    first = _CGROUPS / "cpu" / OURS / "cpu.shares"
    machines = sum(each.is_dir() for each in groups[0].parent.iterdir())
    if first.exists():
        first.write_text(str(_FIRST_WEIGHT * machines))
    else:
        (second / "cpu.weight").write_text(str(_SECOND_WEIGHT * machines))
    return groups


def _folders(node: plan.LabNode) -> Iterator[Path]:
    """Yield the machine's control groups, innermost first."""
    for top in _tops():
        for folder, _, _ in os.walk(top / node.name, topdown=False):
            yield Path(folder)


def _remove_groups(node: plan.LabNode) -> None:
    for folder in _folders(node):
        with suppress(FileNotFoundError):
            folder.rmdir()


def processes(node: plan.LabNode) -> list[int]:
    """Return all processes of a machine, by their numbers on this computer."""
    found: set[int] = set()
    for folder in _folders(node):
        with suppress(OSError):
            found.update(map(int, (folder / "cgroup.procs").read_text().split()))
    return sorted(found)


def _first(processes: list[int]) -> int | None:
    """Return the process that is process 1 inside the machine."""
    for pid in processes:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("NSpid:") and line.split()[2:] == ["1"]:
                    return pid
    return None
