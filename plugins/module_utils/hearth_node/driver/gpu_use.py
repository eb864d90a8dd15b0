"""GPU use on a node: processes on each GPU, their memory, and power limits.

The parser is pure; `use_of_gpus` runs `nvidia-smi`, whose XML output alone lists graphics programs.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any
from xml.etree import ElementTree

from ansible.module_utils.hearth.base.nvidia import room_mib
from ansible.module_utils.hearth_node.driver.inspect import nvidia_smi


def use_of_gpus(ours: Collection[int]) -> tuple[list[dict[str, Any]], str]:
    """Return the NVIDIA GPUs of this machine as `gpus_of` does, and the reason if there is none."""
    said, trouble = nvidia_smi("-q", "-x")
    try:
        return [] if trouble else gpus_of(said, ours), trouble
    except ElementTree.ParseError:
        return [], "nvidia-smi does not say who uses the GPU"


def gpus_of(text: str, ours: Collection[int]) -> list[dict[str, Any]]:
    """Return the GPUs in the output of `nvidia-smi -q -x`.

    Each has its `index`, `name`, memory `used_mib` and `total_mib`, the `room_mib` of it that a run
    can have, `watts_limit` in force and `watts_default`, and its `programs`: `pid`, `name` and
    `mib` of each process, and whether it `computes`; those of a run, `ours`, are left out, but
    their memory counts as `ours_mib`. A figure that the driver does not report is None. Raises
    `ParseError` if it is not XML.
    """
    found = []
    for index, gpu in enumerate(ElementTree.fromstring(text).iter("gpu")):
        programs = [_program(process) for process in gpu.iter("process_info")]
        total, reserved, used = (
            _figure(gpu, f"fb_memory_usage/{each}") for each in ("total", "reserved", "used")
        )
        own = sum(each["mib"] or 0 for each in programs if each["pid"] in ours)
        found.append(
            {
                "index": index,
                "name": _text(gpu, "product_name"),
                "used_mib": used,
                "total_mib": total,
                "room_mib": None if total is None else room_mib(total, reserved, used, own),
                # Driver 535 renamed this element.
                "watts_limit": _figure(gpu, "gpu_power_readings/current_power_limit")
                or _figure(gpu, "gpu_power_readings/power_limit")
                or _figure(gpu, "power_readings/power_limit"),
                "watts_default": _figure(gpu, "gpu_power_readings/default_power_limit")
                or _figure(gpu, "power_readings/default_power_limit"),
                "programs": [each for each in programs if each["pid"] not in ours],
                "ours_mib": own,
            }
        )
    return found


def _program(process: ElementTree.Element) -> dict[str, Any]:
    return {
        "pid": _figure(process, "pid"),
        # A game under Wine or Proton has a Windows path.
        "name": re.split(r"[/\\]", _text(process, "process_name").split(" ")[0])[-1],
        "mib": _figure(process, "used_memory"),
        "computes": "C" in _text(process, "type"),
    }


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _figure(element: ElementTree.Element, path: str) -> int | None:
    """Return the leading integer of a text such as `285.00 W`."""
    try:
        return round(float(_text(element, path).split(" ")[0]))
    except ValueError:
        return None
