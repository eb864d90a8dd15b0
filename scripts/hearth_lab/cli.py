"""The command line of the lab."""

from __future__ import annotations

import argparse
import os
import sys

from hearth_lab import host, image, lab, plan
from hearth_lab.plan import LabError

_ABOUT = """\
Boots real systemd machines (systemd-nspawn) in a network of their own on this computer, to try
Hearth without any: a user `lab` with sudo and the password `lab`, an address from the lab's router.
Needs root. Apart from the base image, which is kept, `down` leaves nothing behind.

  sudo scripts/lab up
  sudo .venv/bin/ansible-playbook -i inventory/lab playbooks/provision/preflight.yml
  sudo scripts/lab down

HEARTH_LAB=NAME in the environment means a lab of its own, beside others on this computer.
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="lab", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    def verb(name: str, about: str, *, node: bool = True) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=about, description=about)
        if node:
            added.add_argument("node", metavar="NODE")
        return added

    start = verb("up", "boot the machines; builds the base image the first time", node=False)
    start.add_argument("--nodes", type=int, default=3, metavar="N", help="how many (default: 3)")
    start.add_argument(
        "--release",
        default="",
        metavar="NAME",
        help="their Debian or Ubuntu, such as trixie, or bookworm,trixie in turn "
        "(default: this computer's)",
    )
    start.add_argument(
        "--slurm",
        action="store_true",
        help="with Slurm: slurmctld on the first, slurmd on all, two partitions",
    )
    start.add_argument(
        "--shared-home",
        action="store_true",
        help="with one home for the user on all machines, as over NFS",
    )
    verb("down", "end the machines and take the lab away, also after a crash", node=False)
    verb("status", "show the machines", node=False)
    login = verb("ssh", "log in on a machine, or run a command there")
    login.add_argument("command", nargs=argparse.REMAINDER)
    verb("cut", "cut a machine's network cable")
    verb("join", "mend the cable")
    speed = verb("link", "hold a machine's cable to a speed, both ways")
    speed.add_argument("rate", metavar="1gbit|100mbit|off")
    share = verb("cpu", "hold a machine to this many cores")
    share.add_argument("cores", metavar="CORES|off")
    memory = verb("memory", "hold a machine to this much memory")
    memory.add_argument("gib", metavar="GIB|off")
    for name, about in (
        ("power-off", "unplug machines: nothing in them is asked or told"),
        ("power-on", "switch them on again; their disks are as they were"),
        ("reset", "switch machines on with fresh disks, bare as on the first day"),
    ):
        verb(name, about, node=False).add_argument("nodes", nargs="+", metavar="NODE")
    return top


def act(arguments: argparse.Namespace) -> int:
    """Run the requested command and return its exit status. Raises LabError."""
    if arguments.verb == "ssh":
        return lab.ssh(arguments.node, arguments.command)
    with host.alone():
        if arguments.verb == "up":
            up, seconds = lab.up(
                arguments.nodes, arguments.release, arguments.slurm, arguments.shared_home
            )
            print(lab.status())
            print(f"\n{len(up.machines)} machines are up after {seconds:.1f} s.")
            if image.packages(image.ensure(image.own_release())) is None:
                print(
                    "They have no training packages, since no .venv here fits their Python; "
                    "./scripts/setup makes one, `lab down` and `lab up` bring it in."
                )
        elif arguments.verb == "down":
            lab.down()
        elif arguments.verb == "status":
            print(lab.status())
        elif arguments.verb in ("power-on", "reset"):
            now = lab.Lab.read()
            start = now.power_on if arguments.verb == "power-on" else now.reset
            print(f"Up after {start(*arguments.nodes):.1f} s: {', '.join(arguments.nodes)}.")
        elif arguments.verb == "power-off":
            lab.Lab.read().power_off(*arguments.nodes)
        else:
            lab.Lab.read().change(arguments.node, **_setting(arguments))
    return 0


def _setting(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the machine settings of a command. Raises LabError for a wrong value."""
    if arguments.verb == "link":
        if arguments.rate != "off":
            plan.megabits(arguments.rate)
        return {"link": None if arguments.rate == "off" else arguments.rate}
    if arguments.verb == "cpu":
        return {"cores": None if arguments.cores == "off" else plan.cores(arguments.cores)}
    if arguments.verb == "memory":
        return {"memory": None if arguments.gib == "off" else plan.gib(arguments.gib)}
    return {"cable": arguments.verb == "join"}


def main() -> int:
    """Run the command line and return the exit status: 2 for an error that a person can fix."""
    arguments = parser().parse_args()
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    try:
        host.check()
        return act(arguments)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2
