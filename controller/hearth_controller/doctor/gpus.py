"""Checks of the driver, of torch's use of the GPUs, and of other programs on them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hearth.base.nvidia import FLOOR, enrol_command, short_gpu, unsupported_gpus
from hearth_controller.doctor.finding import (
    Finding,
    broken,
    check,
    degraded,
    good,
    not_applicable,
    not_checked,
)
from hearth_controller.doctor.node import ExaminedNode, NodeGroup
from hearth_controller.driver.cards import card

GAME_MIB = 300
"""GPU memory from which a program is reported; desktop programs use less or are known by name."""

DESKTOP_MIB = 1024
"""GPU memory that a desktop may hold."""

CAPPED = 0.9
"""A power limit below this share of the default one counts as a cap."""

# Desktop programs and browsers hold GPU memory but hardly compute.
_DESKTOP = (
    *("Xorg", "Xwayland", "gnome-shell", "mutter", "plasmashell", "kwin", "cinnamon"),
    *("gdm", "sddm", "lightdm", "cosmic-comp", "sway", "hyprland", "Hyprland", "weston"),
    *("nautilus", "firefox", "chrome", "chromium", "gjs", "xdg-desktop-portal"),
)
_LIMIT = "power_limit"
"""The inventory's option, and the stage of provisioning that sets it."""

_NO_CARD = not_applicable("no NVIDIA GPU")


@check("driver", "inspection")
def driver(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The loaded module and user space have the same, recent enough version, and answer."""
    its = node.inspection["driver"]
    if its["prime_off"] and not its["works"]:
        return broken(
            "`prime-select intel` is set",
            "it takes the NVIDIA GPU off the bus at every boot",
            f"on {node.name}: sudo prime-select on-demand, then restart it",
        )
    if not its["cards"]:
        return _NO_CARD
    provision = f"{cluster.stage('driver')} -e nodes={node.name}"
    if its["restart"]:
        return broken(its["restart"], "no program can use the GPU", _restart(node, cluster))
    if its["next_boot"]:
        if its["works"]:
            return degraded(its["next_boot"], "the next restart loses the GPU", its["remedy"])
        return broken(its["next_boot"], "no restart changes that", its["remedy"])
    new = [each for each in map(card, its["cards"]) if each.needs_open]
    if its["loaded"] and its["modules"] == "proprietary" and new:
        return broken(
            f"{its['loaded']} with proprietary modules",
            f"{new[0]} works with the open ones only",
            provision,
        )
    if its["works"]:
        return good(f"{its['loaded']}, {its['modules']} modules")
    if its["loaded"] and its["answers"]:
        return broken(f"{its['loaded']}", f"torch needs {FLOOR} or newer", provision)
    seen = f"{its['loaded']} is loaded but does not answer" if its["loaded"] else "none is loaded"
    return broken(seen, "no program can use the GPU", provision)


def _restart(node: ExaminedNode, cluster: NodeGroup) -> str:
    """Return the command that restarts a node, after the one that keeps it reachable."""
    command = f"{cluster.hearth} reboot --nodes {node.name}"
    before = node.inspection.get("driver", {}).get("lockout_remedy", "")
    return f"on {node.name}: {before}; then {command}" if before else command


@check("next kernel", "inspection")
def next_kernel(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The kernel that a restart takes has drivers for the network cards and the root disk."""
    its = node.inspection["driver"]
    if its["lockout"]:
        return degraded(
            its["lockout"],
            "the next restart loses the node",
            f"on {node.name}: {its['lockout_remedy']}",
        )
    if not its["next_kernel"]:
        return not_applicable("no kernel in /boot")
    return good(its["next_kernel"])


@check("Secure Boot", "inspection")
def secure_boot(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """If the firmware loads signed code only, the signer of the driver's module is enrolled."""
    its = node.inspection["driver"]
    if not its["cards"]:
        return _NO_CARD
    if not its["secure_boot"]:
        return good("off")
    if its["signer_enrolled"]:
        return good(f"on, and the module is signed ({its['signer']})")
    if its["loaded"] or its["signer"]:
        by = f"its signer {its['signer']} is not enrolled" if its["signer"] else "it is not signed"
        return (degraded if its["loaded"] else broken)(
            f"on, and the kernel cannot verify the module: {by}",
            "a kernel that enforces Secure Boot keeps it out",
            f"on {node.name}: {enrol_command(its['system']['id'])}, then restart it and choose "
            "Enroll MOK at its screen",
        )
    return broken(
        "on, and no module is loaded",
        "it keeps out a module that is not signed by a key it knows",
        f"{cluster.stage('driver')} -e nodes={node.name}, which says how a key is enrolled",
    )


@check("torch and GPU", "facts")
def torch(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """This torch has code for the GPUs, sees them, and can build kernels for them."""
    facts = node.facts
    if not facts["gpus"]:
        if not facts["cards"]:
            return _NO_CARD
        silent = "its NVIDIA driver does not answer"
        if node.inspection:  # the check of the driver says more
            return not_checked(silent)
        return broken(silent, "no program can use the GPU", cluster.stage("driver"))
    if not facts["cuda"]:
        if node.lock == "cpu":
            return not_applicable("python_lock: cpu, so the GPU is not used")
        return degraded(
            f"torch {facts['torch']} without CUDA",
            "the GPU is idle",
            f"set python_lock: gpu, then {cluster.stage('python')}",
        )
    for gpu in unsupported_gpus(facts):
        return broken(
            f"no code for the {short_gpu([gpu])} in torch {facts['torch']}",
            f"it is built for {', '.join(facts['arch'])}, and that is {gpu['capability']}",
            "set python_lock: cpu for this node, or take another card",
        )
    if not facts["devices"]:
        return broken(
            "torch sees no GPU",
            "training would fall back to the processor",
            _restart(node, cluster),
        )
    if lacking := facts["build_packages"]:
        return broken(
            f"{', '.join(lacking)} missing",
            "Triton builds the GPU's kernels with a C compiler and Python's headers",
            cluster.stage("python"),
        )
    return good(f"torch {facts['torch']} for the {short_gpu(facts['gpus'])}")


@check("GPU shared", "inspection", home=True)
def others(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """No other program computes on the GPUs, such as a game or another training."""
    if missing := _no_use(node):
        return missing
    found = [
        (gpu, program)
        for gpu in node.inspection["gpus"]
        for program in gpu["programs"]
        if _is_reported(program)
    ]
    if not found:
        return good("no other program")
    named = ", ".join(_describe(gpu, program) for gpu, program in found)
    return degraded(
        named,
        "it shares the GPU's time and memory with training",
        f"end it on {node.name}: {', '.join(program['name'] for _, program in found)}",
    )


@check("desktop", "inspection", home=True)
def desktop(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The desktop holds at most 1 GiB of the GPU's memory."""
    if missing := _no_use(node):
        return missing
    held = {gpu["index"]: _held_by_desktop(gpu) for gpu in node.inspection["gpus"]}
    most = max(held, key=held.__getitem__)
    rooms = [
        f"{gpu['room_mib']} of {gpu['total_mib']}"
        for gpu in node.inspection["gpus"]
        if gpu["room_mib"] is not None
    ]
    room = f", {' and '.join(rooms)} MiB are free for training" if rooms else ""
    if held[most] <= DESKTOP_MIB:
        return good(f"{held[most]} MiB{room}")
    return degraded(
        f"{held[most]} MiB of GPU {most}{room}",
        "memory that training lacks",
        "close windows, or log out of the desktop",
    )


@check("power limit", "inspection", home=True)
def power_limit(node: ExaminedNode, cluster: NodeGroup) -> Finding:
    """The limit on each GPU's power is the inventory's; without one, no low limit slows it down."""
    if missing := _no_use(node):
        return missing
    known = [gpu for gpu in node.inspection["gpus"] if gpu["watts_limit"] and gpu["watts_default"]]
    if not known:
        return not_checked("the driver does not say")
    return _unlike(node, cluster, known) if node.power_limit else _low(node, cluster, known)


def _unlike(node: ExaminedNode, cluster: NodeGroup, gpus: Sequence[Mapping[str, Any]]) -> Finding:
    """Return the finding on the limits of a node whose inventory sets one."""
    result = node.stages.get(_LIMIT, {})
    fix = f"{cluster.stage(_LIMIT)} -e nodes={node.name}"
    if result.get("findings"):
        why = "the GPUs draw what their default limits allow"
        return degraded(result["findings"][0], why, f"follow the finding, then {fix}")
    for gpu in gpus:
        if gpu["watts_limit"] != node.power_limit:
            return degraded(
                f"GPU {gpu['index']} is held to {_watts(gpu)}, not to {_LIMIT}: {node.power_limit}",
                "it is neither as fast nor as frugal as you chose",
                fix,
                _LIMIT,
            )
    if result.get("changed"):
        return degraded("its unit is not as provisioned", "a restart loses the limit", fix, _LIMIT)
    return good(", ".join(map(_watts, gpus)))


def _low(node: ExaminedNode, cluster: NodeGroup, gpus: Sequence[Mapping[str, Any]]) -> Finding:
    """Return the finding on the limits of a node whose inventory sets none."""
    if node.stages.get(_LIMIT, {}).get("changed"):
        return degraded(
            "an earlier power_limit of Hearth's",
            "it is still set at every boot",
            f"{cluster.stage(_LIMIT)} -e nodes={node.name}",
            _LIMIT,
        )
    for gpu in gpus:
        if gpu["watts_limit"] < CAPPED * gpu["watts_default"]:
            return degraded(
                f"GPU {gpu['index']} is held to {_watts(gpu)}",
                "it computes more slowly than it could",
                f"on {node.name}: sudo nvidia-smi -i {gpu['index']} -pl {gpu['watts_default']}; "
                f"or if it is meant, {_LIMIT}: {gpu['watts_limit']} in the inventory",
            )
    return good(", ".join(map(_watts, gpus)))


def _watts(gpu: Mapping[str, Any]) -> str:
    """Return the limit in force, and the default one if that is another."""
    limit, default = gpu["watts_limit"], gpu["watts_default"]
    return f"{limit} W" if limit == default else f"{limit} of {default} W"


def _no_use(node: ExaminedNode) -> Finding | None:
    """Return the finding for a node whose GPU use is unknown, or None."""
    if node.inspection["gpus"]:
        return None
    trouble = node.inspection["gpu_trouble"]
    return _NO_CARD if trouble == "no nvidia-smi" else not_checked(trouble or "it names no GPU")


def _is_reported(program: Mapping[str, Any]) -> bool:
    """Return whether to report a program, by its memory or, if that is unknown, by its kind."""
    if _is_desktop(program) or program.get("in_run"):
        return False
    return program["computes"] if program["mib"] is None else program["mib"] >= GAME_MIB


def _is_desktop(program: Mapping[str, Any]) -> bool:
    return str(program["name"]).startswith(_DESKTOP) and not program["computes"]


def _held_by_desktop(gpu: Mapping[str, Any]) -> int:
    """Return the MiB that neither a run nor a program outside the desktop holds."""
    named = sum(each["mib"] or 0 for each in gpu["programs"] if not _is_desktop(each))
    return max((gpu["used_mib"] or 0) - gpu["ours_mib"] - named, 0)


def _describe(gpu: Mapping[str, Any], program: Mapping[str, Any]) -> str:
    holds = f", {program['mib']} MiB" if program["mib"] else ""
    return f"{program['name']} on GPU {gpu['index']} (process {program['pid']}{holds})"
