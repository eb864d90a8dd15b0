"""The ranks of a Slurm step: torchrun's variables for a program that plain `srun` starts.

`srun` tells a task its place in SLURM_* variables; torch and its users read RANK, WORLD_SIZE,
MASTER_ADDR and so on. torch must be imported after they are set.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import sys
from collections.abc import Mapping

import psutil

from hearth.base.errors import LaunchError
from hearth.base.interface import interface_of, source_towards

STEP = "HEARTH_STEP"
"""Environment variable that names the step whose ranks `take_ranks` has set."""

# Below the ports that Linux gives to outgoing connections and above Slurm's own.
_FIRST_PORT, _PORTS = 20_000, 10_000
# Steps of a job whose ports are never those of the next job.
_STEPS = 16


def first_host(nodes: str) -> str:
    """Return the first host of a list as Slurm writes it: `gpu[001-004,7],desk` is `gpu001`."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodes)
    return re.sub(r"\[([^-,\]]*)[^\]]*\]", r"\1", first[0])


def is_step(environment: Mapping[str, str], interactive: bool) -> bool:
    """Return whether this process is a task of a step whose ranks no other launcher has named.

    A command typed in a shell of `srun --pty` is not, though the shell itself is a task.
    """
    return "SLURM_STEP_NODELIST" in environment and "RANK" not in environment and not interactive


def ranks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return torchrun's variables for this task of a step.

    MASTER_ADDR and MASTER_PORT are kept if they are set; else they are rank 0's node and a port
    that belongs to the step. STEP names the step.

    Raises `LaunchError` if Slurm does not say which node has rank 0.
    """
    job, step = environment["SLURM_JOB_ID"], environment["SLURM_STEP_ID"]
    # Slurm's list of such a step is sorted, and begins with whatever node.
    hidden = "SLURM_HET_SIZE" in environment or environment.get("SLURM_DISTRIBUTION") == "arbitrary"
    if hidden and "MASTER_ADDR" not in environment and environment["SLURM_STEP_NUM_NODES"] != "1":
        raise LaunchError(
            "in a heterogeneous job and with --distribution=arbitrary Slurm does not say on which "
            f"node rank 0 of step {job}.{step} is: export MASTER_ADDR=NODE before srun"
        )
    local = environment["SLURM_GTIDS"].count(",") + 1
    own = {
        "RANK": environment["SLURM_PROCID"],
        "LOCAL_RANK": environment["SLURM_LOCALID"],
        "WORLD_SIZE": environment["SLURM_STEP_NUM_TASKS"],
        "LOCAL_WORLD_SIZE": str(local),
        "MASTER_ADDR": first_host(environment["SLURM_STEP_NODELIST"]),
        "MASTER_PORT": str(_FIRST_PORT + (int(job) * _STEPS + int(step)) % _PORTS),
        STEP: f"{job}.{step}",
    }
    if local > 1 or "SLURM_CPUS_PER_TASK" in environment:  # 1 as torchrun does
        own["OMP_NUM_THREADS"] = environment.get("SLURM_CPUS_PER_TASK", "1")
    kept = ("MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
    return own | {name: environment[name] for name in kept if name in environment}


def left_alone(environment: Mapping[str, str], interactive: bool) -> str:
    """Return a warning if this process is a single rank in a job of more; else an empty string."""
    step = is_step(environment, interactive)
    if "RANK" in environment or (step and environment["SLURM_STEP_NUM_TASKS"] != "1"):
        return ""
    nodes = environment.get("SLURM_JOB_NUM_NODES", "1")
    tasks = "1" if step else environment.get("SLURM_NTASKS", "1")  # in a step its own
    if nodes == tasks == "1":
        return ""
    of = f"{tasks} tasks" if nodes == "1" else f"{nodes} nodes"
    return (
        f"Slurm's job {environment['SLURM_JOB_ID']} has {of}, and this is one rank alone: "
        "`srun python …`, without -n1, starts one for each task"
    )


def take_ranks() -> None:
    """Set torchrun's variables of a step and this node's network interface in the environment.

    Outside of a step it only warns on stderr of a single rank in a job of more.

    Raises `LaunchError` if this node does not reach rank 0's, or if rank 0's port is taken.
    """
    interactive = os.isatty(0)
    if warning := left_alone(os.environ, interactive):
        print(f"hearth: {warning}", file=sys.stderr, flush=True)
    if not is_step(os.environ, interactive):
        return
    own = ranks(os.environ)
    os.environ.update(own | _interfaces(own["MASTER_ADDR"], own[STEP]))
    if own["RANK"] == "0" and own["WORLD_SIZE"] != "1":
        try:
            socket.create_server(("", int(own["MASTER_PORT"]))).close()
        except (OSError, OverflowError, ValueError) as error:
            raise LaunchError(
                f"rank 0 of step {own[STEP]} cannot listen on port {own['MASTER_PORT']} of "
                f"{os.uname().nodename} ({error}): export MASTER_PORT=… with a free one"
            ) from error


def _interfaces(leader: str, step: str) -> dict[str, str]:
    """Return the variables of Gloo's and NCCL's network interface, as far as they need a value.

    Without one Gloo takes the address of this machine's name, often 127.0.1.1. srun brings the
    variables of the shell that it was called in, where the interface may have another name.
    """
    node = os.uname().nodename
    try:
        address = socket.getaddrinfo(leader, None)[0][4][0]
        if ipaddress.ip_address(address).is_loopback:  # this is the leader's node
            address = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", address)
        carrier = interface_of(source_towards(address))
    except OSError as error:
        raise LaunchError(
            f"{node} does not reach {leader}, rank 0's node in step {step} ({error.strerror}): "
            f"name it in /etc/hosts of {node}, as `hearth provision --tags names` does, or export "
            "MASTER_ADDR=ADDRESS"
        ) from error
    here = psutil.net_if_addrs().keys()
    found = {}
    if not {*os.environ.get("GLOO_SOCKET_IFNAME", "none here").split(",")} <= here:
        found["GLOO_SOCKET_IFNAME"] = carrier
    exact = os.environ.get("NCCL_SOCKET_IFNAME", "")
    if exact.startswith("=") and not {*exact[1:].split(",")} & here:
        found["NCCL_SOCKET_IFNAME"] = f"={carrier}"
    return found
