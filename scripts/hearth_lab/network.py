"""The home network of the lab: a router, a switch and one cable per machine.

The switch is a bridge in an isolated network namespace. Each machine has its own namespace, created
before power-on and removed afterwards, with the card at the end of its cable and two interfaces
that a cluster must not choose: `docker0` and `tailscale0`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from hearth_lab import plan
from hearth_lab.host import NETWORK, STATE, run, succeeds
from hearth_lab.plan import LabError


def inside(namespace: Path) -> list[str]:
    """Return the command prefix that runs a command in a network namespace."""
    return ["nsenter", f"--net={namespace}", "--"]


def namespace_of(node: plan.LabNode) -> Path:
    """Return the file of the machine's network namespace."""
    return STATE / f"{node.name}.net"


def _make(namespace: Path) -> None:
    namespace.touch()
    run("unshare", f"--net={namespace}", "ip", "link", "set", "lo", "up")


def _ip(namespace: Path, *words: str) -> None:
    run(*inside(namespace), "ip", *words)


def up(nodes: list[plan.LabNode]) -> None:
    """Create the switch, and the router that assigns each machine's address by its MAC."""
    _make(NETWORK)
    _ip(NETWORK, "link", "add", "lan", "type", "bridge")
    _ip(NETWORK, "address", "add", f"{plan.ROUTER}/{plan.PREFIX}", "dev", "lan")
    _ip(NETWORK, "link", "set", "lan", "up")
    leases = [f"--dhcp-host={node.mac},{node.address},{node.name},1h" for node in nodes]
    command = [
        *(*inside(NETWORK), "dnsmasq", "--keep-in-foreground"),
        *("--conf-file=/dev/null", "--pid-file=", "--user=root", "--no-resolv", "--no-hosts"),
        *("--interface=lan", "--bind-interfaces", "--domain=home.arpa", "--local=/home.arpa/"),
        *("--dhcp-authoritative", "--dhcp-range=198.51.100.100,198.51.100.199,1h"),
        f"--dhcp-leasefile={STATE / 'leases'}",
        *leases,
    ]
    with (STATE / "router.log").open("w") as log:
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def plug(node: plan.LabNode) -> None:
    """Create the network namespace, card and decoy interfaces of a machine that is off."""
    unplug(node)
    its = namespace_of(node)
    _make(its)
    tunnel = f"{node.name}-ts"
    for name, card, mac in ((node.name, node.card, node.mac), (tunnel, "tailscale0", "")):
        address = ["address", mac] if mac else []
        _ip(NETWORK, "link", "add", name, "type", "veth", "peer", "name", card, *address)
        _ip(NETWORK, "link", "set", card, "netns", str(its))
    _ip(NETWORK, "link", "set", node.name, "master", "lan")
    _ip(NETWORK, "link", "set", tunnel, "up")
    _ip(its, "link", "add", "docker0", "type", "bridge")
    for name, address in (("docker0", "172.17.0.1/16"), ("tailscale0", node.tailscale)):
        _ip(its, "address", "add", address, "dev", name)
        _ip(its, "link", "set", name, "up")


def unplug(node: plan.LabNode) -> None:
    """Remove everything that `plug` created, as far as it exists."""
    for name in (node.name, f"{node.name}-ts"):
        succeeds([*inside(NETWORK), "ip", "link", "delete", name])
    _forget(namespace_of(node))


def cable(node: plan.LabNode, whole: bool) -> None:
    """Connect or disconnect the cable of a machine's card."""
    _ip(NETWORK, "link", "set", node.name, "up" if whole else "down")


def link(node: plan.LabNode, rate: str | None) -> None:
    """Limit both directions of a cable to a rate, or remove the limit."""
    for namespace, name in ((NETWORK, node.name), (namespace_of(node), node.card)):
        queue = [*inside(namespace), "tc", "qdisc"]
        if rate is None:
            succeeds([*queue, "delete", "dev", name, "root"])
            continue
        # Burst size: a few milliseconds of traffic, and at least one TCP segment.
        burst = max(64, int(plan.megabits(rate)) // 4)
        shape = ["tbf", "rate", rate, "burst", f"{burst}kb", "latency", "20ms"]
        run(*queue, "replace", "dev", name, "root", *shape)


def answers(node: plan.LabNode) -> bool:
    """Return whether the machine's SSH port is reachable over the lab's network."""
    return succeeds([*inside(NETWORK), "nc", "-z", "-w", "1", node.address, "22"])


def down(nodes: list[plan.LabNode]) -> None:
    """Remove the network and end all processes in it. The machines must be off."""
    end_processes([NETWORK, *(namespace_of(node) for node in nodes)])
    for node in nodes:
        unplug(node)
    _forget(NETWORK)


def end_processes(namespaces: list[Path]) -> None:
    """Kill, each by its id, the processes in these namespaces: the router, connections to it."""
    ours = {_identity(path) for path in namespaces} - {None}
    for _ in range(50):
        found = [
            int(path.name)
            for path in Path("/proc").iterdir()
            if path.name.isdigit() and ours and _identity(path / "ns" / "net") in ours
        ]
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    raise LabError(f"Processes in the lab's network do not end: {found}.")


def _identity(namespace: Path) -> tuple[int, int] | None:
    """Return the identity (device, inode) of a namespace, or None if there is none."""
    with suppress(OSError):
        status = namespace.stat()
        if namespace.parent.name == "ns" or os.path.ismount(namespace):
            return status.st_dev, status.st_ino
        # ismount compares folders, so it does not recognize a bind mount of a file.
        if status.st_dev != namespace.parent.stat().st_dev:
            return status.st_dev, status.st_ino
    return None


def _forget(namespace: Path) -> None:
    if _identity(namespace) is not None:
        run("umount", namespace)
    namespace.unlink(missing_ok=True)
