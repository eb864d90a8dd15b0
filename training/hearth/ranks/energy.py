"""Energy that a node uses for its ranks, and the temperature of a rank's device.

Energy is that of the NVIDIA cards, or of the processor. A card has a counter in its driver, or
reports its power, which is then summed up over time. A processor has the counters of RAPL, which
most kernels show to root only. Neither includes the rest of the computer, or the losses of its
power supply.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import torch

from hearth.base.nvml import Cards
from hearth.ranks.world import World

LONGEST_GAP = 10.0
"""Seconds without an answer after which power is no longer taken for constant in between."""

MOST_WATTS = 1000.0
"""More than a processor draws: a counter that would have risen faster than that began anew."""

POWERCAP = Path("/sys/class/powercap")
"""The kernel's folder of energy counters."""


class Counter:
    """A counter of energy that only rises, until it begins again.

    It also does when its driver is loaded again, or its computer wakes up. Its joules in between
    are then unknown and not counted.

    Args:
        ask: returns the joules that it shows; None if it does not answer.
        span: joules that it counts before it begins again at 0 by itself; None if it does not.
        clock: as that of `Power`.
    """

    period = 5.0  # the smallest RAPL counter begins again after some minutes

    def __init__(
        self,
        ask: Callable[[], float | None],
        span: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.joules = 0.0
        self._ask, self._span, self._clock = ask, span, clock
        self._at, self._last = clock(), ask()

    def read(self) -> None:
        """Add the energy since the previous reading to `joules`."""
        at, now = self._clock(), self._ask()
        if now is None:
            return
        if self._last is not None:
            risen = now - self._last
            if risen < 0 and self._span:
                risen += self._span
                if risen > MOST_WATTS * (at - self._at):
                    risen = 0.0
            self.joules += max(risen, 0.0)
        self._at, self._last = at, now


class Power:
    """A power in watts, summed up over time.

    Args:
        ask: returns the watts now; None if there is no answer.
        clock: returns the time in seconds; by default one that stands still while the computer
            sleeps.
    """

    period = 0.1

    def __init__(
        self, ask: Callable[[], float | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.joules = 0.0
        self._ask, self._clock = ask, clock
        self._at, self._watts = clock(), ask()

    def read(self) -> None:
        """Add the energy since the previous reading to `joules`."""
        at, watts = self._clock(), self._ask()
        if watts is None:
            return
        if self._watts is not None and at - self._at <= LONGEST_GAP:
            self.joules += (at - self._at) * (watts + self._watts) / 2
        self._at, self._watts = at, watts


Source = Counter | Power


class Meter:
    """The energy of a node, read in a thread from its `sources` until `close`.

    The rank reports `pending` with each step, and calls `settle` once the others have it: a step
    that is interrupted loses none. A sensor never ends a run: one that fails adds nothing.

    Args:
        sources: none if nothing can be measured, or another rank does.
        holds: is kept open until `close`.
        metered: whether the node's energy is measured, by default whether there is a source.
    """

    def __init__(
        self,
        sources: Sequence[Source] = (),
        holds: Sequence[socket.socket | Cards] = (),
        metered: bool | None = None,
    ) -> None:
        self.metered = bool(sources) if metered is None else metered
        self._sources, self._holds = sources, holds
        self._settled = self._reported = 0.0
        self._lock, self._ended = threading.Lock(), threading.Event()
        if sources:
            threading.Thread(target=self._watch, name="energy", daemon=True).start()

    @classmethod
    def open(cls, world: World) -> Meter:
        """Return the meter of this rank; one of a node's ranks measures for all of them.

        Where two nodes are one computer, the first of them counts the shared sources.
        """
        if world.local_rank:
            return cls()
        with suppress(Exception):  # whatever a driver or a kernel answers
            if wanted := own_cards(world):
                return _meter_of_cards(wanted)
            if world.device.type == "cpu":
                return _meter_of_zones(zones())
        return cls()

    def pending(self) -> float:
        """Return the joules since the last `settle`."""
        self._read()
        self._reported = sum(source.joules for source in self._sources)
        return self._reported - self._settled

    def settle(self) -> None:
        """Take what `pending` returned last for counted."""
        self._settled = self._reported

    def close(self) -> None:
        """End the measurement."""
        self._ended.set()
        with self._lock:
            for each in self._holds:
                each.close()
            self._holds = ()

    def _watch(self) -> None:
        period = min(source.period for source in self._sources)
        while not self._ended.wait(period):
            self._read()

    def _read(self) -> None:
        with self._lock, suppress(Exception):
            for source in () if self._ended.is_set() else self._sources:
                source.read()


def own_cards(world: World) -> list[str]:
    """Return the UUIDs of the NVIDIA cards that the ranks of this node compute on."""
    if world.device.type != "cuda":
        return []
    present = torch.cuda.device_count()
    ranks = range(world.layout.count(world.node))
    devices = dict.fromkeys(rank % present for rank in ranks)
    return [str(torch.cuda.get_device_properties(device).uuid) for device in devices]


def zones(root: Path = POWERCAP) -> list[Path]:
    """Return the folders of the counters whose sum is the processors' energy, with their memory.

    A package counts its cores, and not the memory; `psys` counts all of them a second time.
    """
    found = []
    for zone in sorted(root.glob("intel-rapl:*")):
        name = (zone / "name").read_text().strip()
        if name.startswith("package") or name == "dram":
            found.append(zone)
    return found


def _meter_of_cards(wanted: Sequence[str]) -> Meter:
    """Return the meter of the cards with these UUIDs; without a source if one tells nothing."""
    cards = Cards.open()
    if cards is None:
        return Meter()
    by_uuid = {_bare(uuid): index for index, uuid in enumerate(cards.uuids)}
    holds: list[socket.socket | Cards] = [cards]
    sources: list[Source] = []
    for uuid in map(_bare, wanted):
        source = _source_of_card(cards, by_uuid[uuid]) if uuid in by_uuid else None
        if source is None:
            cards.close()
            return Meter()
        if held := _hold(uuid):
            sources.append(source)
            holds.append(held)
    return Meter(sources, holds, metered=True)


def _source_of_card(cards: Cards, card: int) -> Source | None:
    """Return the energy counter of a card, or else its power; None if it tells neither."""
    if cards.energy_joules(card) is not None:
        return Counter(lambda: cards.energy_joules(card))
    if cards.watts(card) is not None:
        return Power(lambda: cards.watts(card))
    return None


def _meter_of_zones(found: Sequence[Path]) -> Meter:
    """Return the meter of a processor's counters. Raises `OSError` if one cannot be read."""
    if not found:
        return Meter()
    sources = [
        Counter(_joules_in(zone / "energy_uj"), _joules_in(zone / "max_energy_range_uj")())
        for zone in found
    ]
    held = _hold(str(found[0]))
    return Meter(sources, [held], metered=True) if held else Meter(metered=True)


def _joules_in(file: Path) -> Callable[[], float]:
    """Return a function that reads joules from a kernel file of microjoules."""
    return lambda: int(file.read_text()) / 1e6


def _bare(uuid: str) -> str:
    """Return the UUID of a card as torch writes it, which leaves out NVML's `GPU-`."""
    return uuid.removeprefix("GPU-")


def _hold(source: str) -> socket.socket | None:
    """Return a claim on a source that ends with this process; None if another process has it.

    It is a name of a local socket without connections, so that no file is left behind.
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        # Keeps two nodes of one user on one computer from counting its energy twice. It is no lock:
        # any user may bind any such name, and one who does leaves this node's energy uncounted.
        claim.bind(f"\0hearth-energy-{os.getuid()}-{source}")
    except OSError:
        claim.close()
        return None
    return claim


_PROCESSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
"""Kernel drivers that report a processor's temperature: Intel, AMD, AMD, Arm."""


def celsius(device: torch.device) -> float:
    """Return the temperature in °C of the rank's GPU, or of the processor; 0 if it is unknown.

    A sensor must never end a run: any error counts as an unknown temperature.
    """
    try:
        if device.type == "cuda":
            return float(torch.cuda.temperature(device))
        # Virtual machines have no sensors.
        found = psutil.sensors_temperatures()
        sensors = [each for name in _PROCESSORS for each in found.get(name, [])]
        return max((sensor.current for sensor in sensors), default=0.0)
    except Exception:  # NVML alone has a class for each of 20 errors, and may itself be missing
        return 0.0
