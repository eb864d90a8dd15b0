"""Slurm on the lab's machines: slurmctld on the first, slurmd on all of them, two partitions.

A job of the partition `pair` gets at most two nodes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from hearth_lab import machine, plan
from hearth_lab.host import run
from hearth_lab.plan import LabError

# munge's installation makes a key, which all machines of one image therefore share.
DEBS = "slurmctld,slurmd,slurm-client,munge"
FILES = {
    # linuxproc needs no control groups. Looking for their version, slurmd would refuse a computer
    # that has both.
    "etc/slurm/cgroup.conf": "CgroupPlugin=cgroup/v1\n",
    "etc/systemd/system/slurmctld.service.d/lab.conf": f"""\
[Unit]
ConditionHost={plan.nodes(1)[0].name}
""",
}
_READY_SECONDS = 600
_CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={first.name}({first.address})
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# A machine that was unplugged is missed soon, and welcome when it is back.
SlurmdTimeout=30
ReturnToService=2
# Four tasks fit a machine, however few cores this computer has.
SlurmdParameters=config_overrides
{nodes}
PartitionName=lab Default=YES Nodes=ALL
PartitionName=pair Nodes=ALL MaxNodes=2
"""


def configuration(nodes: Sequence[plan.LabNode]) -> str:
    """Return the slurm.conf of all machines."""
    lines = [f"NodeName={node.name} NodeAddr={node.address} CPUs=4" for node in nodes]
    return _CONFIGURATION.format(first=nodes[0], nodes="\n".join(lines))


def install(node: plan.LabNode, nodes: Sequence[plan.LabNode]) -> None:
    """Write slurm.conf to the fresh disk of a machine."""
    file = machine.disk(node) / "upper" / "etc/slurm/slurm.conf"
    file.parent.mkdir()
    file.write_text(configuration(nodes))


def states(nodes: Sequence[plan.LabNode]) -> dict[str, str]:
    """Return Slurm's state of each node by its name; empty while slurmctld does not answer."""
    with suppress(LabError):
        if console := machine.within(nodes[0]):
            said = run(*console, "sinfo", "--Node", "--noheader", "--format=%N %T")
            return dict(line.split() for line in said.splitlines())
    return {}


def wait(nodes: Sequence[plan.LabNode]) -> float:
    """Wait until all nodes are idle and return the elapsed seconds."""
    began = time.monotonic()
    while (found := states(nodes)) != dict.fromkeys((node.name for node in nodes), "idle"):
        if time.monotonic() > began + _READY_SECONDS:
            raise LabError(f"Slurm's nodes are not idle after {_READY_SECONDS} s: {found}.")
        time.sleep(0.2)
    return time.monotonic() - began
