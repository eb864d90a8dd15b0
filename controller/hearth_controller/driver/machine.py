"""Data classes for the driver decision: a machine's facts, and the plan for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hearth.base.nvidia import NVIDIA
from hearth_controller.driver.cards import Card, card

# Kernel driver of a card that is passed through to a virtual machine.
HANDED_ON = "vfio-pci"


@dataclass(frozen=True)
class Machine:
    """Facts about a machine: the result of inspecting it, and its options."""

    name: str
    look: Mapping[str, Any]
    install: bool = True
    branch: str = "auto"
    repository: str = "distribution"
    url: str = ""
    toolkit: bool = False

    @property
    def cards(self) -> list[Card]:
        """Its NVIDIA cards, except those passed through to a virtual machine."""
        return [
            card(found["device"])
            for found in self.look["cards"]
            if found["vendor"] == NVIDIA and found["driver"] != HANDED_ON
        ]

    @property
    def release(self) -> str:
        """NVIDIA's name for its system, such as debian12 or ubuntu2404."""
        return self.look["system"]["id"] + self.look["system"]["version"].replace(".", "")


@dataclass
class DriverPlan:
    """Plan for a machine.

    `action` is `none` (no NVIDIA card, or not wanted), `keep` (it works), `install`, `load` (the
    installed driver only has to be loaded, or needs a restart) or `refuse`. `first` is installed
    before `packages`, `extra` only where apt can. `kind` names the module packages that Ubuntu has
    for each kernel, such as 580-open. A finding stops the machine; `note` is one line for the
    screen. `toolkit` is the package of the CUDA toolkit ('' for none), `toolkit_source` the
    repository that it needs, if any.
    """

    action: str
    note: str = ""
    findings: list[str] = field(default_factory=list)
    open_modules: bool = True
    branch: int = 0
    first: list[str] = field(default_factory=list)
    kind: str = ""
    packages: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    source: dict[str, str] = field(default_factory=dict)
    toolkit: str = ""
    toolkit_source: dict[str, str] = field(default_factory=dict)
