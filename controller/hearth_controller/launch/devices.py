"""Devices that the nodes of a run compute on, and GPUs that should and do not. Pure.

`memory` are the facts of a node from the module `hearth_look`: its `gpus` as the driver lists them,
whether its torch has `cuda`, the NVIDIA `cards` on its bus by PCI id, whether `prime-select intel`
has them off (`prime_off`), and why its driver lists none (`trouble`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hearth.base.nvidia import short_gpu, usable_gpus
from hearth_controller.driver.cards import card

_TAKEN = "; -e cpu=on trains on its processor all the same"


def unused_gpu(memory: Mapping[str, Any]) -> str:
    """Return the finding on a GPU of a node that torch could train on and will not, or ''."""
    if memory["gpus"] and memory["cuda"]:
        return ""
    if memory["prime_off"]:
        return (
            "`prime-select intel` takes its NVIDIA GPU off the bus: sudo prime-select on-demand "
            f"there, then restart it{_TAKEN}"
        )
    names = ", ".join(str(each) for each in map(card, memory["cards"]) if each.trains)
    if not names:
        return ""
    if not memory["gpus"]:
        return (
            f"{names} is on its bus, and its driver does not answer ({memory['trouble']}): "
            f"`hearth provision --tags driver,python` mends that{_TAKEN}"
        )
    return (
        f"{names} answers, and the torch of its environment is built without CUDA: "
        f"`hearth provision --tags python` mends that{_TAKEN}"
    )


def unseen_gpu(memory: Mapping[str, Any], torch_gpus: int | None) -> str:
    """Return the finding on a GPU that the driver lists and torch does not see, or ''."""
    if not (memory["gpus"] and memory["cuda"]) or torch_gpus != 0:
        return ""
    return (
        f"its driver lists {short_gpu(memory['gpus'])}, and torch sees no GPU there: "
        f"`hearth doctor` says why{_TAKEN}"
    )


def gpus_of(memory: Mapping[str, Any], torch_gpus: int | None = None) -> int:
    """Return the number of GPUs that a node computes on, 0 for its processor."""
    return usable_gpus(memory) if torch_gpus != 0 else 0


def device_of(memory: Mapping[str, Any], torch_gpus: int | None = None) -> str:
    """Return the device of a node as text: its GPUs, or `processor` with any GPUs left idle."""
    if gpus_of(memory, torch_gpus):
        return short_gpu(memory["gpus"])
    idle = short_gpu(memory["gpus"]) or short_gpu(
        [{"name": each.name} for each in map(card, memory["cards"]) if each.trains]
    )
    return f"processor ({idle} idle)" if idle else "processor"
