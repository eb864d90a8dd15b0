"""The lab as a whole: its recorded state and the implementation of each command."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from contextlib import suppress

from hearth_lab import image, machine, network, plan, slurm
from hearth_lab.host import NETWORK, STATE, cache, run
from hearth_lab.plan import LabError

_RECORD = STATE / "state.json"
_BOOT_SECONDS = 600


class Lab:
    """The lab that is up on this computer; `machines` in rank order."""

    def __init__(self, machines: dict[str, plan.MachineSettings]) -> None:
        self.machines = machines

    @classmethod
    def read(cls) -> Lab:
        """Read the lab that is up. Raises LabError if none is."""
        try:
            found = json.loads(_RECORD.read_text())
        except (OSError, ValueError):
            raise LabError("The lab is not up; start it with:  scripts/lab up") from None
        return cls({name: plan.MachineSettings(**settings) for name, settings in found.items()})

    def write(self) -> None:
        """Record the settings of the machines."""
        text = json.dumps({n: dataclasses.asdict(s) for n, s in self.machines.items()}, indent=1)
        fresh = _RECORD.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(_RECORD)

    @property
    def nodes(self) -> list[plan.LabNode]:
        """The machines that this lab has."""
        return plan.nodes(len(self.machines))

    def find(self, name: str) -> plan.LabNode:
        """Return the machine of this name. Raises LabError that lists the existing ones."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise LabError(f"There is no machine {name} in the lab; it has {', '.join(self.machines)}.")

    def change(self, name: str, **settings: object) -> None:
        """Change settings of a machine, record and apply them."""
        node = self.find(name)
        changed = self.machines[name] = dataclasses.replace(self.machines[name], **settings)
        self.write()
        if changed.power:
            _apply(node, changed)

    def install(self, node: plan.LabNode) -> None:
        """Create a fresh disk for a machine that is off."""
        machine.install(node)
        if self.machines[node.name].slurm:
            slurm.install(node, self.nodes)

    def power_on(self, *names: str) -> float:
        """Switch machines on, wait until they are up and return the elapsed seconds."""
        nodes = [self.find(name) for name in names]
        for node in nodes:
            if not machine.is_on(node):
                its = self.machines[node.name]
                base = image.ensure(its.release, with_slurm=its.slurm)
                network.plug(node)
                home = {f"/home/{plan.USER}": machine.shared_home(base)} if its.shared_home else {}
                machine.power_on(node, base, image.shared(base), home)
            self.machines[node.name].power = True
            _apply(node, self.machines[node.name])
        self.write()
        return _wait([node for node in nodes if self.machines[node.name].cable])

    def power_off(self, *names: str) -> None:
        """Unplug machines."""
        for node in [self.find(name) for name in names]:
            machine.power_off(node)
            network.unplug(node)
            self.machines[node.name].power = False
        self.write()

    def reset(self, *names: str) -> float:
        """Give machines fresh disks and default settings; switch them on as `power_on` does."""
        self.power_off(*names)
        for name in names:
            node, its = self.find(name), self.machines[name]
            self.machines[name] = plan.MachineSettings(its.release, its.slurm, its.shared_home)
            self.install(node)
            _forget_key(node)
        return self.power_on(*names)


def up(
    count: int, release: str = "", with_slurm: bool = False, shared_home: bool = False
) -> tuple[Lab, float]:
    """Start the lab with `count` machines and return it with the elapsed seconds.

    `release` names the releases as `plan.releases` reads them; by default this computer's.
    `with_slurm` makes the machines the nodes of a Slurm cluster, which is ready on return;
    with a `shared_home` the user has one home on all machines.
    Machines that are on stay on. Raises LabError if the lab is up with other machines, or if a
    machine does not start; a partly started lab is then removed.
    """
    nodes = plan.nodes(count)
    releases = plan.releases(release or image.own_release(), count)
    if with_slurm and len(set(releases)) > 1:
        raise LabError(f"--slurm --release {release}: Slurm wants the same release on all nodes.")
    if _RECORD.exists() and NETWORK.exists():
        lab = Lab.read()
        there = [
            (settings.release, settings.slurm, settings.shared_home)
            for settings in lab.machines.values()
        ]
        if there != [(each, with_slurm, shared_home) for each in releases]:
            kinds = ", ".join(
                f"{each}{' with Slurm' * slurms}{' with one home' * shares}"
                for each, slurms, shares in dict.fromkeys(there)
            )
            raise LabError(
                f"The lab is up with {len(there)} machines ({kinds}); first:  scripts/lab down"
            )
        return lab, lab.power_on(*lab.machines)
    down()
    for each in dict.fromkeys(releases):
        image.ensure(each, with_slurm=with_slurm)
    STATE.mkdir(mode=0o700)
    lab = Lab(
        {
            node.name: plan.MachineSettings(its, with_slurm, shared_home)
            for node, its in zip(nodes, releases, strict=True)
        }
    )
    try:
        lab.write()
        network.up(nodes)
        for node in nodes:
            lab.install(node)
        seconds = lab.power_on(*lab.machines)
        return lab, seconds + (slurm.wait(nodes) if with_slurm else 0)
    except BaseException:
        down()
        raise


def down() -> None:
    """End the lab and remove everything except the base image, including remains of a crash."""
    everyone = plan.nodes()
    for node in everyone:
        machine.power_off(node)
    network.down(everyone)
    machine.forget(everyone)
    shutil.rmtree(STATE, ignore_errors=True)


def ssh(name: str, command: list[str]) -> int:
    """Log in to a machine, or run a command there; return its exit status."""
    node = Lab.read().find(name)
    # ssh runs a program to get the password, and /run may be mounted without exec.
    helper = cache() / "password"
    helper.write_text(f"#!/bin/sh\necho {plan.PASSWORD}\n")
    helper.chmod(0o700)
    os.environ.update(SSH_ASKPASS=str(helper), SSH_ASKPASS_REQUIRE="force")
    options = [
        f"ProxyCommand=nsenter --net={NETWORK} nc %h %p",
        f"UserKnownHostsFile={STATE / 'known_hosts'}",
        "StrictHostKeyChecking=accept-new",
        "PubkeyAuthentication=no",
        "ConnectTimeout=10",
        "LogLevel=ERROR",
    ]
    words = [word for option in options for word in ("-o", option)]
    login = f"{plan.USER}@{node.address}"
    return os.spawnvp(os.P_WAIT, "ssh", ["ssh", "-F", "none", *words, login, *command])


def status() -> str:
    """Return a table of the machines."""
    lab = Lab.read()
    heads = ("machine", "power", "address", "card", "cable", "link", "cores", "GiB")
    rows = [(*heads, "release", "slurm", "ssh")]
    states = slurm.states(lab.nodes)
    for node in lab.nodes:
        settings = lab.machines[node.name]
        limits = settings.cores, settings.memory
        rows.append(
            (
                node.name,
                "on" if machine.is_on(node) else "off",
                node.address,
                node.card,
                "joined" if settings.cable else "cut",
                settings.link or "off",
                *("all" if limit is None else f"{limit:g}" for limit in limits),
                settings.release,
                states.get(node.name, "silent") if settings.slurm else "no",
                "answers" if network.answers(node) else "silent",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _apply(node: plan.LabNode, settings: plan.MachineSettings) -> None:
    network.link(node, settings.link)
    network.cable(node, settings.cable)
    machine.share(node, settings.cores)
    machine.give_memory(node, settings.memory)


def _wait(nodes: list[plan.LabNode]) -> float:
    began = time.monotonic()
    waiting = nodes
    while waiting := [n for n in waiting if not (machine.is_booted(n) and network.answers(n))]:
        for node in waiting:
            if not machine.is_on(node):
                raise LabError(f"{node.name} did not start:\n{machine.log(node)}")
        if time.monotonic() > began + _BOOT_SECONDS:
            names = ", ".join(node.name for node in waiting)
            raise LabError(f"Not up after {_BOOT_SECONDS} s: {names}.\n{machine.log(waiting[0])}")
        time.sleep(0.2)
    return time.monotonic() - began


def _forget_key(node: plan.LabNode) -> None:
    """Remove a recreated machine's host keys from those of `lab ssh` and of inventory/lab."""
    for name, known in ((node.address, STATE / "known_hosts"), (node.name, STATE / "pinned")):
        if known.exists():
            with suppress(LabError):
                run("ssh-keygen", "-q", "-R", name, "-f", known)
