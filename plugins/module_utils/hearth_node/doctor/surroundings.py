"""Surroundings of a node: other uses, power source, disks, network card, paths to its peers.

Read-only. `root` is / except in tests, which build a tree of their own.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.hearth.base.commands import run
from ansible.module_utils.hearth_node.base import nearest_folder, text_of
from ansible.module_utils.hearth_node.doctor import other_users
from ansible.module_utils.hearth_node.doctor.health import interface_of
from ansible.module_utils.hearth_node.driver import gpu_use
from ansible.module_utils.hearth_node.runs import leftovers

_HEADERS = {4: 28, 6: 48}
"""Bytes of IP and ICMP headers, by IP version."""

_SMALL = 56
_TRIES = 3


def home(workspace: str) -> dict[str, Any]:
    """Return `on_battery`, the `gpus` with their programs, and the reason if there are none.

    The reason is `gpu_trouble`. Processes of the runs in `workspace` are told from others, and
    those of `other_runs`, of other users, are marked as `in_run`.
    """
    kept, lost = leftovers.processes(workspace)
    gpus, trouble = gpu_use.use_of_gpus(kept | {each["pid"] for each in lost})
    runs = other_users.runs_of_others()
    theirs = {pid for each in runs or () for pid in each["pids"]}
    for gpu in gpus:
        for program in gpu["programs"]:
            if program["pid"] in theirs:
                program["in_run"] = True
    return {
        "on_battery": on_battery(),
        "gpus": gpus,
        "gpu_trouble": trouble,
        "other_runs": runs,
    }


def on_battery(root: str = "/") -> bool | None:
    """Return whether this machine runs on its battery; None if it has none."""
    batteries, mains = [], []
    for folder in glob.glob(os.path.join(root, "sys/class/power_supply/*")):
        kind = text_of(f"{folder}/type").strip()
        if kind == "Battery" and text_of(f"{folder}/scope").strip() != "Device":  # not a mouse's
            batteries.append(text_of(f"{folder}/status").strip())
        elif kind in ("Mains", "USB"):
            mains.append(text_of(f"{folder}/online").strip() == "1")
    return "Discharging" in batteries and not any(mains) if batteries else None


def disks(folders: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the disks that hold these folders, each once: `what`, `folder`, free and total MiB.

    A folder that is not there yet will be on the disk of its nearest parent.
    """
    found: dict[int, dict[str, Any]] = {}
    for what, folder in folders.items():
        folder = nearest_folder(folder)
        usage = shutil.disk_usage(folder)
        disk = {"what": what, "folder": folder}
        found.setdefault(
            os.stat(folder).st_dev,
            disk | {"free_mib": usage.free >> 20, "total_mib": usage.total >> 20},
        )
    return list(found.values())


def identity(root: str = "/") -> dict[str, Any]:
    """Return the machine's unique ids: `machine_id` and public `host_keys`."""
    keys = [
        " ".join(text_of(path).split()[:2])
        for path in sorted(glob.glob(os.path.join(root, "etc/ssh/ssh_host_*_key.pub")))
    ]
    machine = text_of(os.path.join(root, "etc/machine-id")).strip()
    return {"machine_id": machine, "host_keys": [key for key in keys if key]}


def card(address: str) -> dict[str, Any]:
    """Return the `name` and `mtu` of the NIC that carries an address; '' and None where no does."""
    name = interface_of(address)
    mtu = text_of(f"/sys/class/net/{name or 'none'}/mtu").strip()
    return {"name": name, "mtu": int(mtu) if mtu.isdecimal() else None}


def paths(mtu: int | None, peers: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return by peer whether packets of the NIC's `mtu` arrive in `full`, and `small` ones at all.

    Where a full one does not, `mtu` is the one that ICMP reported for the path. Empty without
    `ping`, which needs no root; at most four packets per peer, one second each.
    """
    if not mtu or not peers or shutil.which("ping") is None:
        return {}
    with ThreadPoolExecutor(len(peers)) as threads:
        each = {name: threads.submit(_path, address, mtu) for name, address in peers.items()}
        return {name: path.result() for name, path in each.items()}


def _path(address: str, mtu: int) -> dict[str, Any]:
    size = mtu - _HEADERS[6 if ":" in address else 4]
    for _ in range(_TRIES):  # Wi-Fi drops packets now and then
        full, said = _ping(address, "-M", "do", "-s", str(size))
        if full or "mtu" in said:
            break
    small = full or _ping(address, "-s", str(_SMALL))[0]
    reported = re.search(r"mtu ?= ?(\d+)", said)
    return {
        "full": full,
        "small": small,
        "mtu": int(reported[1]) if reported and not full else None,
    }


def _ping(address: str, *words: str) -> tuple[bool, str]:
    done = run("ping", "-n", "-c", "1", "-W", "1", *words, address, seconds=5)
    return done.returncode == 0, done.stdout + done.stderr
