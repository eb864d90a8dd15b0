"""Choose the driver of each machine in a cluster, with reasons. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hearth.base.nvidia import (
    FLOOR,
    THEN_AGAIN,
    major,
    not_restarted,
    restart_warning,
)
from hearth_controller.driver.cards import OTHER_MAKERS, Card
from hearth_controller.driver.packages import (
    FIRST_BRANCH,
    HANDED_ON,
    DriverPlan,
    GpuMachine,
    add_toolkit,
    from_canonical,
    from_nvidia,
)


def decide(machines: list[GpuMachine]) -> dict[str, DriverPlan]:
    """Return the plan of each machine, by name.

    All machines that need an install get one branch: the requested one, or with `auto` the oldest
    that is new enough and in the repositories of all of them. Raises ValueError for a branch that
    is invalid or too old, and if the machines request different ones.
    """
    wanted = _one_branch(machines)
    plans = {machine.name: _without_install(machine) for machine in machines}
    needing = [machine for machine in machines if plans[machine.name] is None]
    firsts = [FIRST_BRANCH.get(machine.release, FLOOR) for machine in needing]
    branch = int(wanted) if wanted != "auto" else max([FLOOR, *firsts])
    decided = {
        machine.name: plans[machine.name] or _install(machine, branch) for machine in machines
    }
    for machine in machines:
        if machine.toolkit and machine.cards:
            add_toolkit(machine, decided[machine.name])
    return decided


def _one_branch(machines: list[GpuMachine]) -> str:
    """Return the one branch that all machines request. Raises ValueError."""
    asked = {machine.branch: machine.name for machine in machines}
    if len(asked) > 1:
        each = ", ".join(f"{name} {branch}" for branch, name in asked.items())
        raise ValueError(
            f"driver_branch is not the same on all machines ({each}): set it once, for the cluster"
        )
    wanted = next(iter(asked), "auto")
    if wanted != "auto" and not (wanted.isdigit() and int(wanted) >= FLOOR):
        raise ValueError(
            f"driver_branch: {wanted} is not possible: torch's CUDA 13 needs {FLOOR} or newer; "
            f"set it to auto, {FLOOR} or a newer branch"
        )
    return wanted


def _without_install(machine: GpuMachine) -> DriverPlan | None:
    """Return the plan of a machine that needs no install, or cannot have one for its cards."""
    look, cards = machine.look, machine.cards
    if look["prime_off"] and machine.install and not look["works"]:
        return DriverPlan(
            "refuse",
            findings=[
                "`prime-select intel` (/etc/prime-discrete says off) takes the NVIDIA GPU off the "
                "bus at every boot: sudo prime-select on-demand, restart the machine, "
                f"{THEN_AGAIN}; or set driver_install: off for it to train on its processor",
                *_before_a_restart(look),
            ],
        )
    if not cards:
        return DriverPlan("none", "no NVIDIA GPU, so it trains on its processor" + _unused(look))
    if not machine.install:
        return DriverPlan("none", "its driver is left alone, as driver_install: off says")
    if not any(each.trains for each in cards):
        named = ", ".join(map(str, cards))
        return DriverPlan(
            "refuse",
            findings=[
                f"{named}: torch's CUDA 13 build has no code for cards older than Turing "
                "(compute capability below 7.5), so it cannot train. Take the machine out of the "
                "inventory, or set driver_install: off for it to train on its processor"
            ],
        )
    if look["works"]:
        kind = f" ({look['modules']} modules)" if look["modules"] else ""
        left = f"driver {look['loaded']}{kind} works and is left as it is"
        return DriverPlan("keep", left + restart_warning(look))
    if look["modules"] == "proprietary" and any(each.needs_open for each in cards):
        named = ", ".join(str(each) for each in cards if each.needs_open)
        return DriverPlan(
            "refuse",
            findings=[
                f"{named} needs NVIDIA's open kernel modules, and the proprietary ones of "
                f"{look['loaded']} are loaded: remove that driver, restart the machine, "
                f"{THEN_AGAIN}",
                *_before_a_restart(look),
            ],
        )
    stuck = look["restart"] or (look["loaded"] and look["loaded"] == look["library"])
    if major(look["library"]) >= FLOOR and not (
        # Only Canonical ships prebuilt module packages, which may lag behind the kernel. They
        # help unless a restart is all that is needed, or the right module is loaded and fails.
        look["system"]["id"] == "ubuntu" and look["library_package"] and not stuck
    ):
        return DriverPlan("load", branch=major(look["library"]))
    if look["library"] and not look["library_package"]:
        return DriverPlan(
            "refuse",
            findings=[
                f"driver {look['library']} is older than {FLOOR} and comes from no package, so "
                f"packages would collide with it: sudo nvidia-uninstall, {THEN_AGAIN}"
            ],
        )
    return None


def _before_a_restart(look: Mapping[str, Any]) -> list[str]:
    """Return the finding against a restart that another finding asks for, if there is one."""
    return [not_restarted(look)] if look["lockout"] else []


def _unused(look: Mapping[str, Any]) -> str:
    """Return the note on the graphics cards of a machine without a GPU to train with."""
    makers = {OTHER_MAKERS.get(found["vendor"], "") for found in look["cards"]} - {""}
    said = f"; its {' and '.join(sorted(makers))} graphics are not used" if makers else ""
    if any(found["driver"] == HANDED_ON for found in look["cards"]):
        said += f"; a card that {HANDED_ON} holds is left to its virtual machine"
    return said


def _install(machine: GpuMachine, branch: int) -> DriverPlan:
    """Return the plan of a machine whose driver is missing, too old or not usable."""
    present = major(machine.look["library"])
    # A driver that is new enough but lacks a module for this kernel keeps its branch.
    branch = present if present >= FLOOR else branch
    plan = DriverPlan("install", branch=branch, open_modules=_open_modules(machine.cards, branch))
    system = machine.look["system"]["id"]
    if system == "ubuntu":
        from_canonical(machine, plan)
    elif system == "debian":
        from_nvidia(machine, plan)
    else:
        plan.findings.append(
            f"Hearth installs drivers on Ubuntu and Debian, and this is "
            f"{machine.look['system']['name']}: install NVIDIA's driver {FLOOR} or newer with what "
            f"it offers, {THEN_AGAIN}"
        )
    if plan.findings:
        return DriverPlan("refuse", findings=plan.findings)
    plan.note = _describe(machine.cards, plan)
    return plan


def _open_modules(cards: list[Card], branch: int) -> bool:
    """Return whether a machine gets the open modules: always, unless an old card needs the others.

    Older cards that cannot train are still driven if one kind of module supports all cards: 580 is
    the last branch that does, unless a card needs the open modules.
    """
    old = any(each.needs_proprietary for each in cards)
    return not old or branch > FLOOR or any(each.needs_open for each in cards)


def _describe(cards: list[Card], plan: DriverPlan) -> str:
    """Return the note about an install."""
    kind = "open" if plan.open_modules else "proprietary"
    good = ", ".join(str(each) for each in cards if each.trains)
    lines = [f"{good}: driver {plan.branch} with {kind} modules"]
    for each in cards:
        if not each.trains:
            driven = each.needs_proprietary and not plan.open_modules
            fate = "shows a picture, but does not train" if driven else "is not driven any more"
            lines.append(f"{each} {fate}: too old for torch")
        elif not each.known:
            lines.append(
                f"10de:{each.device} is not in Hearth's table of cards; it is taken for a new one "
                f"that open modules of branch {plan.branch} drive, which is a guess"
            )
    return "\n".join(lines)


def shown(plans: dict[str, DriverPlan]) -> str:
    """Return one or more lines per machine; machines with equal lines share them."""
    names: dict[str, list[str]] = {}
    for name, plan in plans.items():
        if plan.note:
            names.setdefault(plan.note, []).append(name)
    return "\n".join(
        f"  {', '.join(each)}: " + text.replace("\n", "\n    ") for text, each in names.items()
    )
