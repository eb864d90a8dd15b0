"""What is known of a machine that may need a driver, and what is to be done on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.hearth_node.driver.cards import NVIDIA, Card, card

# torch's CUDA 13 needs it.
FLOOR = 580
# The driver of a card that belongs to a virtual machine.
HANDED_ON = "vfio-pci"
# How a sentence ends that tells a person what to do.
THEN_AGAIN = "then run provision.yml again"


@dataclass(frozen=True)
class Machine:
    """What is known of a machine: what its look says, and its options."""

    name: str
    look: Mapping[str, Any]
    install: bool = True
    branch: str = "auto"
    repository: str = "distribution"
    url: str = ""
    key: str = ""

    @property
    def cards(self) -> list[Card]:
        """Its NVIDIA cards, but for those that it hands to a virtual machine."""
        return [
            card(found["device"])
            for found in self.look["cards"]
            if found["vendor"] == NVIDIA and found["driver"] != HANDED_ON
        ]

    @property
    def release(self) -> str:
        """What NVIDIA calls its system, such as debian12."""
        return self.look["system"]["id"] + self.look["system"]["version"].split(".")[0]


@dataclass
class Plan:
    """What is to be done on a machine.

    `action` is `none` (no NVIDIA card, or not wanted), `keep` (it works), `install`, `load` (what
    is installed only has to be loaded, or needs a restart) or `refuse`. `first` is installed before
    `packages`, and of `extra` what the archive still has. A finding stops the machine; `note` is
    one line for the screen.
    """

    action: str
    note: str = ""
    findings: list[str] = field(default_factory=list)
    open_modules: bool = True
    branch: int = 0
    first: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    source: dict[str, str] = field(default_factory=dict)


def major(version: str) -> int:
    """Return the branch of a version such as 580.126.09; 0 for none."""
    found = re.match(r"\d+", version)
    return int(found[0]) if found else 0
