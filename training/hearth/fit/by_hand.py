"""The memory check for the computer that this runs on, for a run started by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import psutil
import torch

from hearth.base.errors import ModelError
from hearth.base.nvml import Cards
from hearth.config import Run
from hearth.config.layout import Layout
from hearth.fit.capacity import Room, rooms_of_ranks
from hearth.fit.home import Candidate, unplaceable
from hearth.fit.misfits import misfits, unknown
from hearth.fit.published import shape_beforehand
from hearth.ranks.memory import free_gib
from hearth.ranks.world import has_nvidia_gpu


def check_fit(run: Run, layout: Layout, say: Callable[[str], None]) -> None:
    """Check whether the model of `run` fits, before it is downloaded.

    Raises `ModelError` with the settings that would make it fit; `fit: warn` only warns.
    """
    model = run.source.name
    shape = shape_beforehand(run, layout)
    if shape is None:
        say(unknown(model))
        return
    settings, rooms = run.settings, rooms_here(run.settings.memory_limit)
    world_size = os.environ.get("WORLD_SIZE", "1")
    ranks = [Candidate("here", rooms[rank % len(rooms)]) for rank in range(int(world_size))]
    if not settings.in_stages:
        findings = list(misfits(model, settings, shape, ranks).values())
    elif os.environ.get("LOCAL_WORLD_SIZE", "1") == world_size:
        findings = list(filter(None, [unplaceable(settings, shape, ranks)]))
    else:  # The memory of other computers is known once all ranks have met.
        findings = []
    for finding in findings:
        if settings.fit == "refuse":
            raise ModelError(finding)
        say(f"WARNING: {finding}")


def room_here(memory_limit: float | None, environment: Mapping[str, str] = os.environ) -> Room:
    """Return the memory available to this rank."""
    return rooms_here(memory_limit, environment)[int(environment.get("LOCAL_RANK", "0"))]


def rooms_here(
    memory_limit: float | None, environment: Mapping[str, str] = os.environ
) -> list[Room]:
    """Return the memory available to each of the ranks that torchrun starts on this computer."""
    cuda = has_nvidia_gpu()
    count = torch.cuda.device_count() if cuda else 0
    cards = [torch.cuda.get_device_properties(index) for index in range(count)]
    ranks = int(environment.get("LOCAL_WORLD_SIZE", "1"))
    known = _rooms_of_cards(ranks) if cuda else []
    gpus = [
        # An integrated GPU reports all of the computer's memory, most of it in use or not.
        {
            "name": each.name,
            "memory_mib": not each.is_integrated and each.total_memory >> 20,
            "capability": f"{each.major}.{each.minor}",
        }
        for each in cards
    ]
    if len(known) == count:
        gpus = [gpu | room for gpu, room in zip(gpus, known, strict=True)]
    facts = {"cuda": cuda, "gpus": gpus, "free_mib": round(free_gib() * 1024)}
    return rooms_of_ranks(facts, ranks, memory_limit=memory_limit)


def _rooms_of_cards(ranks: int) -> list[dict[str, Any]]:
    """Return `room_mib` and other `programs` of each card, as NVML tells it; empty if it does not.

    What this process holds, its children and the other `ranks` that torchrun started is the run's.
    """
    if (cards := Cards.open()) is None:
        return []
    process = psutil.Process()
    head = (process.parent() or process) if ranks > 1 else process
    ours = {head.pid, *(each.pid for each in head.children(recursive=True))}
    with closing(cards):
        rooms = [
            {"room_mib": cards.room_mib(card, ours), "programs": cards.programs(card, ours)}
            for card in range(cards.count)
        ]
    return [] if any(room["room_mib"] is None for room in rooms) else rooms
