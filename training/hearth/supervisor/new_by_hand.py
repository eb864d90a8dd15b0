"""A run that begins by hand on the nodes of the cluster: the same command on each, torchrun below.

The trainer does the rest, as under any torchrun: it fetches model and data, and all ranks take the
settings and the name of the run from rank 0.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from hearth.base.errors import LaunchError
from hearth.base.interface import free_port, source_towards
from hearth.config import Run, resolve_run
from hearth.config.cli import parse_command_line, with_small_model
from hearth.config.layout import Layout, staged_name
from hearth.ranks.control_protocol import Form
from hearth.supervisor.cluster_file import CONFIG, LAUNCHER, Cluster
from hearth.supervisor.preflight import ready
from hearth.supervisor.spec import Spec
from hearth.supervisor.workers import command, environment

PORT = 29500
"""The default port of rank 0, which is torchrun's own."""


def typed_run(workspace: Path, words: Sequence[str]) -> Run:
    """Return the run that the settings in `words` ask for, as this node sees it.

    Raises `ConfigError` for wrong settings, before torchrun is started for them.
    """
    typed = parse_command_line(words)
    if typed.run_file:
        raise LaunchError(
            f"--run-file: {LAUNCHER} RANK --run NAME continues a run that `hearth train` has "
            "started"
        )
    given, _ = with_small_model(typed)
    results = Layout.from_environment({"HEARTH_WORKSPACE": str(workspace)}).results
    return resolve_run(given, results, file=typed.config, say=lambda _: None)


def new_spec(
    cluster: Cluster, workspace: Path, rank: int, run: str, words: Sequence[str], port: int
) -> Spec:
    """Return the spec of this node's ranks in a new run over all nodes of the cluster.

    Raises `LaunchError` if this node has another rank, or another network than CONFIG says.
    """
    nodes = cluster.by_rank
    if nodes[rank : rank + 1] != (cluster.own,):
        own = nodes.index(cluster.own)
        raise LaunchError(
            f"{cluster.own} is rank {own} of {', '.join(nodes)} ({workspace / CONFIG}), not "
            f"{rank}: type {_typed(own, words)}"
        )
    addresses = cluster.addresses(nodes)
    return ready(
        Spec(
            run=run,
            node=cluster.own,
            rank=rank,
            nodes=nodes,
            addresses=addresses,
            ports=(port,) * len(nodes),
            nproc=int(cluster.nodes[cluster.own].get("nproc") or 1),
            python=cluster.python,
            workspace=workspace,
            token="",
            interface=cluster.interface,
            models=cluster.models,
            arguments=tuple(words),
        )
    )


def stage_files(run: Run, workspace: Path) -> None:
    """Copy a person's own data files to where a run in a workspace looks for them."""
    data = Layout.from_environment({"HEARTH_WORKSPACE": str(workspace)}).data
    for name, sha256 in run.data_checksums.items():
        if sha256 and not run.shards and not (place := data / staged_name(sha256, name)).exists():
            data.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, place.with_suffix(".unfinished"))
            place.with_suffix(".unfinished").rename(place)


def group_by_hand(spec: Spec, generation: int) -> Form:
    """Return the group of all ranks of a run, which meets at rank 0's node."""
    address = spec.addresses[0]
    # Where the nodes are one computer, they connect from another address than their own.
    clients = tuple(sorted({*spec.addresses, source_towards(address)}))
    return Form(generation, spec.nodes, address, spec.ports[0], clients, fresh=True)


def new_command(spec: Spec) -> tuple[list[str], dict[str, str]]:
    """Return torchrun's command line and environment, and say what to type on the other nodes.

    Raises `LaunchError` on rank 0 if the port is taken.
    """
    if spec.rank == 0:
        free_port(spec.address, spec.ports[0])
    group = group_by_hand(spec, generation=0)
    for rank, (name, address) in enumerate(zip(spec.nodes, spec.addresses, strict=True)):
        if rank != spec.rank:
            print(f"hearth: on {name} ({address}): {_typed(rank, spec.arguments)}")
    variables = environment(spec, group)
    # No play has filled the caches of this node.
    variables.pop("HF_HUB_OFFLINE")
    if offline := os.environ.get("HF_HUB_OFFLINE"):
        variables["HF_HUB_OFFLINE"] = offline
    return command(spec, group), variables


def _typed(rank: int, words: Sequence[str]) -> str:
    return shlex.join([LAUNCHER, str(rank), *words])
