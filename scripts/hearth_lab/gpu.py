"""The graphics card of each machine: a fake PCI bus with one card, as the kernel would show it.

The card is a stand-in. Its data for `lspci` and /sys is stored on the machine's disk, and a unit in
the machine mounts it over the bus. The output of a driver and of `nvidia-smi` comes from the
stand-in packages (see `repository`), which read the same description.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from hearth_lab import plan

# On a machine: the bus, the output of the nvidia-smi stand-in, and the content of /proc/driver.
BUS = "/var/lib/lab/pci"
ANSWERS = "/var/lib/lab/gpu.json"
LOADED = "/run/lab/driver"
# What a loaded driver keeps until it is loaded anew: persistence mode and the limit on power.
KEPT = "/run/lab/driver/nvidia/kept.json"

_SLOT = "0000:01:00.0"


@dataclass(frozen=True)
class Gpu:
    """A card: its name in the driver, MiB, compute capability, PCI id and class; its power.

    `watts` is the limit by default, `least` and `most` are the ends of its range. If it is not
    `settable`, as on laptops, the driver only says that it went on without setting it.
    """

    name: str
    memory: int
    capability: str
    watts: int
    least: int
    most: int
    device: int
    pci_class: int = 0x030000
    settable: bool = True


_GPUS = (
    Gpu("NVIDIA GeForce RTX 5070 Ti", 16303, "12.0", 300, 150, 330, 0x2C05),
    Gpu("NVIDIA GeForce RTX 4070 Laptop GPU", 8188, "8.9", 140, 5, 140, 0x2860, 0x030200, False),
    Gpu("NVIDIA GeForce RTX 3070 Ti", 8192, "8.6", 290, 100, 310, 0x2482),
)

# Shows the bus, hides the computer's own drivers in /proc/driver, and then loads an already
# installed driver, as a boot does.
UNIT = f"""\
[Unit]
Description=The graphics card of this machine (a stand-in)
DefaultDependencies=no
RequiresMountsFor=/var/lib/lab
After=systemd-tmpfiles-setup.service
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/mount --bind {BUS} /sys/bus/pci
ExecStart=/bin/mkdir -p {LOADED}
ExecStart=/bin/mount --bind {LOADED} /proc/driver
ExecStart=-/bin/sh -c 'modprobe nvidia 2>/dev/null'
[Install]
WantedBy=sysinit.target
"""


def card_of(node: plan.LabNode) -> Gpu:
    """Return the card of a machine."""
    number = [each.name for each in plan.nodes()].index(node.name)
    return _GPUS[number % len(_GPUS)]


def install(node: plan.LabNode, disk: Path) -> None:
    """Write the description of a machine's card to its disk."""
    card = card_of(node)
    place = disk / BUS.lstrip("/") / "devices" / _SLOT
    place.mkdir(parents=True)
    (disk / BUS.lstrip("/") / "drivers").mkdir()
    for name, number in {"vendor": 0x10DE, "device": card.device}.items():
        (place / name).write_text(f"0x{number:04x}\n")
    (place / "class").write_text(f"0x{card.pci_class:06x}\n")
    (place / "revision").write_text("0xa1\n")
    (place / "irq").write_text("0\n")
    (place / "resource").write_text(f"{' '.join(['0x' + '0' * 16] * 3)}\n" * 13)
    (place / "config").write_bytes(_configuration(card))
    answers = asdict(card) | {"slot": _SLOT, "kept": KEPT}
    (disk / ANSWERS.lstrip("/")).write_text(json.dumps(answers) + "\n")


def _configuration(card: Gpu) -> bytes:
    """Return the 64 bytes of a PCI device's header (PCI 3.0, section 6.1), little-endian."""
    header = bytearray(64)
    header[0x00:0x04] = b"\xde\x10" + card.device.to_bytes(2, "little")
    header[0x08:0x0C] = b"\xa1" + card.pci_class.to_bytes(3, "little")
    return bytes(header)
