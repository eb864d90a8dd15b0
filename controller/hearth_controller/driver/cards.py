"""Identify NVIDIA cards by PCI id: chip, architecture and compute capability.

Device ids from 2024's pci.ids (https://pci-ids.ucw.cz) and, for Blackwell, from the list of
compatible GPUs in the README of NVIDIA's open-gpu-kernel-modules. NVIDIA gives each chip a range of
ids, so a card released after this table was written is still known by its neighbours. Compute
capabilities are those of https://developer.nvidia.com/cuda-gpus.
"""

from __future__ import annotations

from dataclasses import dataclass

OTHER_MAKERS = {"1002": "AMD", "8086": "Intel"}


@dataclass(frozen=True)
class Card:
    """An NVIDIA card as its PCI id identifies it.

    `capability` is the compute capability times ten (86 is sm_86). An id that the table lacks has
    `known` False; above Turing's first id it is taken for a card newer than the table.
    """

    device: str
    name: str
    architecture: str
    capability: int
    known: bool = True

    @property
    def trains(self) -> bool:
        """Whether torch's CUDA 13 build supports it: sm_75 and newer."""
        return self.capability >= 75

    @property
    def needs_open(self) -> bool:
        """Whether only the open kernel modules drive it: Blackwell and newer."""
        return self.capability >= 100

    @property
    def needs_proprietary(self) -> bool:
        """Whether only the proprietary modules drive it, 580 being their last branch for it."""
        return 50 <= self.capability < 75

    def __str__(self) -> str:
        """Return the name with architecture and PCI id."""
        return f"{self.name} ({self.architecture}, 10de:{self.device})"


# First id, last id, chip, architecture, compute capability times ten. GPUs only: ids of audio
# and USB functions lie in between, but those are not display controllers and are never looked up.
_CHIPS = (
    (0x0FC0, 0x0FFF, "GK107", "Kepler", 30),
    (0x1001, 0x103F, "GK110", "Kepler", 35),
    (0x1180, 0x11BF, "GK104", "Kepler", 30),
    (0x11C0, 0x11FF, "GK106", "Kepler", 30),
    (0x1280, 0x12BF, "GK208", "Kepler", 35),
    (0x1340, 0x137F, "GM108", "Maxwell", 50),
    (0x1380, 0x13BF, "GM107", "Maxwell", 50),
    (0x13C0, 0x13FF, "GM204", "Maxwell", 52),
    (0x1400, 0x143F, "GM206", "Maxwell", 52),
    (0x15F0, 0x15FF, "GP100", "Pascal", 60),
    (0x1610, 0x166F, "GM204", "Maxwell", 52),
    (0x1725, 0x172F, "GP100", "Pascal", 60),
    (0x1740, 0x17BF, "GM107", "Maxwell", 50),
    (0x17C0, 0x17FF, "GM200", "Maxwell", 52),
    (0x1B00, 0x1B7F, "GP102", "Pascal", 61),
    (0x1B80, 0x1BFF, "GP104", "Pascal", 61),
    (0x1C00, 0x1C7F, "GP106", "Pascal", 61),
    (0x1C80, 0x1CFF, "GP107", "Pascal", 61),
    (0x1D00, 0x1D7F, "GP108", "Pascal", 61),
    (0x1D80, 0x1DFF, "GV100", "Volta", 70),
    (0x1E00, 0x1E7F, "TU102", "Turing", 75),
    (0x1E80, 0x1EFF, "TU104", "Turing", 75),
    (0x1F00, 0x1F7F, "TU106", "Turing", 75),
    (0x1F80, 0x1FFF, "TU117", "Turing", 75),
    (0x2080, 0x20FF, "GA100", "Ampere", 80),
    (0x2180, 0x21FF, "TU116", "Turing", 75),
    (0x2200, 0x227F, "GA102", "Ampere", 86),
    (0x2300, 0x237F, "GH100", "Hopper", 90),
    (0x2400, 0x247F, "GA103", "Ampere", 86),
    (0x2480, 0x24FF, "GA104", "Ampere", 86),
    (0x2500, 0x257F, "GA106", "Ampere", 86),
    (0x2580, 0x25FF, "GA107", "Ampere", 86),
    (0x2680, 0x26FF, "AD102", "Ada", 89),
    (0x2700, 0x277F, "AD103", "Ada", 89),
    (0x2780, 0x27FF, "AD104", "Ada", 89),
    (0x2800, 0x287F, "AD106", "Ada", 89),
    (0x2880, 0x28FF, "AD107", "Ada", 89),
    (0x2900, 0x297F, "GB100", "Blackwell", 100),
    (0x2B80, 0x2BFF, "GB202", "Blackwell", 120),
    (0x2C00, 0x2C7F, "GB203", "Blackwell", 120),
    (0x2D00, 0x2D7F, "GB206", "Blackwell", 120),
    (0x2D80, 0x2DFF, "GB207", "Blackwell", 120),
    (0x2E00, 0x2E7F, "GB10", "Blackwell", 121),
    (0x2F00, 0x2F7F, "GB205", "Blackwell", 120),
    (0x3180, 0x31FF, "GB110", "Blackwell", 103),
)

_TURING = 0x1E00

# Product names of common home cards; any other card is named by its chip.
_NAMES = {
    "1004": "GeForce GTX 780",
    "102d": "Tesla K80",
    "1380": "GeForce GTX 750 Ti",
    "13c2": "GeForce GTX 970",
    "17c8": "GeForce GTX 980 Ti",
    "1b06": "GeForce GTX 1080 Ti",
    "1b38": "Tesla P40",
    "1b80": "GeForce GTX 1080",
    "1b81": "GeForce GTX 1070",
    "1c03": "GeForce GTX 1060 6GB",
    "1c82": "GeForce GTX 1050 Ti",
    "15f8": "Tesla P100",
    "1d81": "TITAN V",
    "1db1": "Tesla V100",
    "1e04": "GeForce RTX 2080 Ti",
    "1e07": "GeForce RTX 2080 Ti",
    "1e84": "GeForce RTX 2070 SUPER",
    "1eb8": "Tesla T4",
    "1f08": "GeForce RTX 2060",
    "2182": "GeForce GTX 1660 Ti",
    "2184": "GeForce GTX 1660",
    "20b0": "A100",
    "2204": "GeForce RTX 3090",
    "2206": "GeForce RTX 3080",
    "2208": "GeForce RTX 3080 Ti",
    "2331": "H100 PCIe",
    "2482": "GeForce RTX 3070 Ti",
    "2484": "GeForce RTX 3070",
    "2489": "GeForce RTX 3060 Ti",
    "2503": "GeForce RTX 3060",
    "2504": "GeForce RTX 3060",
    "2684": "GeForce RTX 4090",
    "2702": "GeForce RTX 4080 SUPER",
    "2704": "GeForce RTX 4080",
    "2705": "GeForce RTX 4070 Ti SUPER",
    "2782": "GeForce RTX 4070 Ti",
    "2783": "GeForce RTX 4070 SUPER",
    "2786": "GeForce RTX 4070",
    "2803": "GeForce RTX 4060 Ti",
    "2805": "GeForce RTX 4060 Ti",
    "2820": "GeForce RTX 4070 Laptop GPU",
    "2860": "GeForce RTX 4070 Laptop GPU",
    "2882": "GeForce RTX 4060",
    "28e0": "GeForce RTX 4060 Laptop GPU",
    "2901": "B200",
    "2b85": "GeForce RTX 5090",
    "2c02": "GeForce RTX 5080",
    "2c05": "GeForce RTX 5070 Ti",
    "2d04": "GeForce RTX 5060 Ti",
    "2d05": "GeForce RTX 5060",
    "2e12": "GB10",
    "2f04": "GeForce RTX 5070",
}


def card(device: str) -> Card:
    """Return the card with this NVIDIA PCI device id, four hexadecimal digits such as `2c05`."""
    device = device.lower()
    number = int(device, 16)
    for first, last, chip, architecture, capability in _CHIPS:
        if first <= number <= last:
            return Card(device, _NAMES.get(device, chip), architecture, capability)
    if number < _CHIPS[0][0] or 0x1040 <= number < 0x1300:
        return Card(device, "NVIDIA card", "Fermi or older", 20)
    if number < _TURING:
        return Card(device, "NVIDIA card", "unknown, older than Turing", 0, known=False)
    return Card(device, "NVIDIA card", "unknown, perhaps newer than Blackwell", 999, known=False)
