"""Current load of a node: its processors, memory, network and NVIDIA GPUs.

The parsers are pure; `load_of_node` reads the counters twice, a moment apart, to compute rates.
"""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.hearth.node.limit_cost import LimitCost, costs
from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.doctor import other_users
from ansible.module_utils.hearth_node.driver.inspect import nvidia_smi
from ansible.module_utils.hearth_node.network.nics import see
from ansible.module_utils.hearth_node.system.memory import host_memory

# Reasons for reduced clocks, by bit: nvmlClocksEventReasons of nvml.h
# (https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html). The bits
# for idle, user-set clocks and display clocks are left out: they are no fault.
THROTTLES = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x20: "heat",
    0x40: "heat",
    0x80: "power brake",
}

_FIELDS = (
    "index",
    "name",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "power.default_limit",
    "uuid",
)
_FIGURES = (
    *("index", "load_percent", "used_mib", "total_mib", "celsius"),
    *("watts", "watts_limit", "watts_default"),
)
# Field names: from driver 535 on, and before.
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")


def load_of_node(address: str, speeds: str, moment: float = 1.0) -> dict[str, Any]:
    """Return the load of this node; rates are measured over the next `moment` seconds.

    `speeds` is the folder of the measurements of its ranks, which tell what a limit on power costs.

    `cores`, `cpu_percent` of all of them, `memory` (`used_mib`, `total_mib`), `network`
    (`interface` of the cluster address, bytes a second `received` and `sent`; None where no
    interface carries it), `gpus`, `gpu_trouble`: the reason if there are none, as a sentence, and
    the `other_runs` of other users (see `other_users`).
    """
    interface = interface_of(address)
    began, before, counted = time.monotonic(), text_of("/proc/stat"), _bytes(interface)
    gpus, trouble = load_of_gpus(speeds)
    time.sleep(max(0.0, moment - (time.monotonic() - began)))
    seconds, after = time.monotonic() - began, _bytes(interface)
    rates = [round((new - old) / seconds) for old, new in zip(counted, after, strict=True)]
    return {
        "cores": os.cpu_count(),
        "cpu_percent": cpu_percent(before, text_of("/proc/stat")),
        "memory": host_memory(text_of("/proc/meminfo")),
        "network": {"interface": interface, "received": rates[0], "sent": rates[1]}
        if interface
        else None,
        "gpus": gpus,
        "gpu_trouble": trouble,
        "other_runs": other_users.runs_of_others(),
    }


def interface_of(address: str) -> str:
    """Return the interface that carries an address, or ''; all of loopback belongs to `lo`."""
    if ipaddress.ip_address(address).is_loopback:
        return "lo"
    return next((nic.name for nic in see() if nic.carries(address)), "")


def cpu_percent(before: str, after: str) -> float | None:
    """Return the CPU load between two readings of /proc/stat, in percent of all processors."""
    # user nice system idle iowait irq softirq steal; user already includes guest time.
    times = [
        [int(word) for word in text.partition("\n")[0].split()[1:9]] for text in (before, after)
    ]
    spent = [new - old for old, new in zip(*times, strict=True)]
    idle = sum(spent[3:5])
    return round(100 * (1 - idle / sum(spent)), 1) if sum(spent) > 0 else None


def load_of_gpus(speeds: str) -> tuple[list[dict[str, Any]], str]:
    """Return the NVIDIA GPUs of this machine, and the reason if there are none."""
    for reasons in _REASONS:
        query = ",".join((*_FIELDS, reasons))
        said, trouble = nvidia_smi(f"--query-gpu={query}", "--format=csv,noheader,nounits")
        if "not a valid field" not in trouble:
            break
    known = costs(Path(speeds)) if said else []
    gpus = [_gpu(line, known) for line in said.splitlines() if line.strip()]
    return gpus, trouble if gpus or trouble else "nvidia-smi sees no GPU"


def _gpu(line: str, known: Sequence[LimitCost]) -> dict[str, Any]:
    """Return one GPU; None where the driver has no figure (`[N/A]`, `[Not Supported]`).

    `limit_cost` is the newest of the `known` costs of the limit in force, None if there is none.
    """
    *fields, uuid, reasons = (field.strip() for field in line.split(","))
    figures = [_figure(field) for field in (*fields[:1], *fields[2:])]
    gpu: dict[str, Any] = dict(zip(_FIGURES, figures, strict=True))
    limit = gpu["watts_limit"]
    found = [cost for cost in known if limit is not None and cost.is_of(uuid, limit)]
    return {
        "name": fields[1],
        **gpu,
        "limit_cost": {"slower": round(found[-1].slower, 3), "measured": found[-1].measured}
        if found
        else None,
        "throttled_by": throttled_by(reasons),
    }


def throttled_by(reasons: str) -> list[str] | None:
    """Return the throttle reasons in the driver's bit mask; None if it reports no mask."""
    try:
        bits = int(reasons, 16)
    except ValueError:
        return None
    return list(dict.fromkeys(word for bit, word in THROTTLES.items() if bits & bit))


def _figure(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else number


def _bytes(interface: str) -> list[int]:
    """Return the bytes an interface has received and sent."""
    folder = Path("/sys/class/net", interface or "none", "statistics")
    return [int(text_of(str(folder / f"{way}_bytes")) or 0) for way in ("rx", "tx")]
