"""Start this node's ranks of a run by hand, for debugging: torchrun in the foreground.

A run that train.yml has started here goes on from its newest checkpoint, as after a lost node. With
settings behind the rank (those of train_distributed.py, such as --model NAME), or where train.yml
has started none, a new run begins over all nodes of the cluster: without settings it trains the
small preset on the shipped data. Either way type the command on every node, with the node's own
rank. Nothing looks after the ranks: Ctrl-C on each node ends them.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hearth.base.entry import print_findings
from hearth.base.errors import HearthError, LaunchError
from hearth.base.interface import free_port, source_towards
from hearth.config import Run, resolve_run
from hearth.config.cli import parse_command_line, with_small_model
from hearth.config.layout import Layout, staged_name
from hearth.ranks.control_protocol import Form
from hearth.record.onto import find_adapter
from hearth.supervisor.cause import Cause, State, generation_of
from hearth.supervisor.preflight import ready
from hearth.supervisor.record import RunRecord, node_lock, record_in
from hearth.supervisor.spec import Spec, load_spec
from hearth.supervisor.workers import command, end, environment, leftovers, scratch

CONFIG = "cluster_config.yaml"
"""File in a workspace that describes the nodes of the cluster; `hearth provision` writes it."""

LAUNCHER = "./launch_cluster.sh"
"""The command that a person types on a node."""

PORT = 29500
"""The default port of rank 0, which is torchrun's own."""


def main(arguments: list[str] | None = None) -> int:
    """Start torchrun; return its exit status, or 2 if it cannot be started."""
    parser = argparse.ArgumentParser(
        prog=LAUNCHER,
        usage="%(prog)s RANK [--run NAME] [--port PORT] [setting ...]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("rank", type=int, help="the rank of this node in the run")
    parser.add_argument(
        "--run",
        help="the name of the run; by default the one that `hearth train` started last here",
    )
    parser.add_argument(
        "--port",
        type=int,
        help=f"of a new run: port of rank 0, the same on all nodes (default: {PORT})",
    )
    parser.add_argument("--workspace", type=Path, required=True, help=argparse.SUPPRESS)
    given, settings = parser.parse_known_args(arguments)
    try:
        if settings or given.port or not _known_specs(given.workspace):
            if given.run:
                settings += ["--run-name", given.run]
            return _begin(given.workspace, given.rank, settings, given.port or PORT)
        spec = spec_by_hand(given.workspace, given.rank, given.run)
        with node_lock(spec.workspace, spec.run):
            return _launch(spec)
    except HearthError as error:
        return print_findings(error)


def _known_specs(workspace: Path) -> list[Path]:
    """Return the specs of runs that train.yml has started on this node, the newest last."""
    return sorted((workspace / "config").glob("*.json"), key=lambda path: path.stat().st_mtime)


def spec_by_hand(workspace: Path, rank: int, run: str | None) -> Spec:
    """Return the spec of `run`, or of the run started last, on this node.

    Addresses and interface are those of CONFIG. Raises `LaunchError` if there is no such run, this
    node has another rank in it, or the network differs from CONFIG.
    """
    cluster = read_cluster(workspace)
    specs = _known_specs(workspace)
    found = [path for path in specs if run in (None, path.stem)]
    if not found:
        raise LaunchError(
            f"{workspace}: `hearth train` has started no run {run!r} here (known: "
            f"{', '.join(path.stem for path in specs)}); with settings behind it, such as --model "
            "NAME, this command begins a new one"
        )
    spec = load_spec(found[-1])
    if missing := [name for name in spec.nodes if name not in cluster.nodes]:
        raise LaunchError(
            f"{workspace / CONFIG}: {', '.join(missing)} of run '{spec.run}' is missing; "
            "`hearth provision --tags workspace` writes the file anew"
        )
    if rank != spec.rank:
        raise LaunchError(
            f"{cluster.own} is rank {spec.rank} of run '{spec.run}' ({', '.join(spec.nodes)}), not "
            f"{rank}: type {LAUNCHER} {spec.rank} --run {spec.run}"
        )
    addresses = cluster.addresses(spec.nodes)
    return ready(dataclasses.replace(spec, addresses=addresses, interface=cluster.interface))


def _begin(workspace: Path, rank: int, settings: list[str], port: int) -> int:
    """Run torchrun for this node's ranks of a new run; return its exit status."""
    run = typed_run(workspace, settings)
    spec = new_spec(read_cluster(workspace), workspace, rank, run.name, settings, port)
    with node_lock(workspace, run.name):
        group = _meet(spec, 0, lambda rank: _typed(rank, spec.arguments))
        stage_files(run, workspace)
        variables = environment(spec, group)
        # No play has filled the caches of this node.
        variables.pop("HF_HUB_OFFLINE")
        if offline := os.environ.get("HF_HUB_OFFLINE"):
            variables["HF_HUB_OFFLINE"] = offline
        return abs(_in_foreground(spec, command(spec, group), Path.cwd(), variables))


def _launch(spec: Spec) -> int:
    """Run torchrun with the lock of the node held, and keep the record of the run."""
    generation = max(generation_of(record_in(spec.record)) + 1, spec.generation)
    group = _meet(spec, generation, lambda rank: _typed(rank, ("--run", spec.run)))
    words = command(spec, group)
    spec.stop_file.unlink(missing_ok=True)
    record = RunRecord.from_spec(spec, generation=generation, state="running", command=words)
    record.write(spec.record)
    record.exit_code = _in_foreground(spec, words, spec.place, environment(spec, group))
    if record.exit_code:
        message = f"torchrun, started by hand, ended with status {record.exit_code}"
        record.cause = Cause(spec.node, None, "rank_failed", message)
    ended: State = "stopped" if spec.stop_file.exists() else "finished"
    record.enter("failed" if record.exit_code else ended)
    record.write(spec.record)
    return abs(record.exit_code)


def _meet(spec: Spec, generation: int, typed: Callable[[int], str]) -> Form:
    """Return the group of all ranks of a run, and print the command for each other node.

    It meets at rank 0's node. Processes of an earlier run on this node are ended first. Raises
    `LaunchError` on rank 0 if the port is taken.
    """
    asyncio.run(end(leftovers(spec.workspace)))
    address, port = spec.addresses[0], spec.ports[0]
    if spec.rank == 0:
        free_port(address, port)
    for rank, (name, its) in enumerate(zip(spec.nodes, spec.addresses, strict=True)):
        if rank != spec.rank:
            print(f"hearth: on {name} ({its}): {typed(rank)}")
    # Where the nodes are one computer, they connect from another address than their own.
    clients = tuple(sorted({*spec.addresses, source_towards(address)}))
    return Form(generation, spec.nodes, address, port, clients, fresh=True)


def _in_foreground(
    spec: Spec, words: Sequence[str], place: Path, variables: Mapping[str, str]
) -> int:
    """Run torchrun in the folder `place` until it ends; return its exit status."""
    print(f"hearth: {shlex.join(words)}", flush=True)
    process = subprocess.Popen(words, cwd=place, env=variables)
    # Ctrl-C reaches torchrun by itself, which ends its ranks; this process waits for it.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    status = process.wait()
    shutil.rmtree(scratch(spec), ignore_errors=True)
    return status


@dataclass(frozen=True)
class ClusterFile:
    """The nodes of the cluster by name, and this node's name, Python and model cache ('': own)."""

    own: str
    python: str
    models: str
    nodes: Mapping[str, Mapping[str, Any]]

    @property
    def by_rank(self) -> tuple[str, ...]:
        """The names of all nodes in the order of their ranks."""
        return tuple(sorted(self.nodes, key=lambda name: self.nodes[name]["rank"]))

    def addresses(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the cluster addresses of nodes."""
        return tuple(str(self.nodes[name]["address"]) for name in names)

    @property
    def interface(self) -> str:
        """The NIC of this node's cluster address; '' if provisioning has not seen it."""
        return self.nodes[self.own].get("interface") or ""


def read_cluster(workspace: Path) -> ClusterFile:
    """Return the cluster that CONFIG in `workspace` describes.

    Raises `LaunchError` if the file cannot be read, or does not describe this node.
    """
    path = workspace / CONFIG
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        nodes = {node["name"]: node for node in config["nodes"]}
        own = nodes[config["node"]]["name"]
        return ClusterFile(own, str(config["python"]), str(config.get("models") or ""), nodes)
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        why = " ".join(str(error).split())
        raise LaunchError(
            f"{path}: cannot be read ({type(error).__name__}: {why}); "
            "`hearth provision --tags workspace` writes the file anew"
        ) from error


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
    return resolve_run(
        given, results, file=typed.config, say=lambda _: None, find_adapter=find_adapter
    )


def new_spec(
    cluster: ClusterFile, workspace: Path, rank: int, run: str, words: Sequence[str], port: int
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


def _typed(rank: int, words: Sequence[str]) -> str:
    return shlex.join([LAUNCHER, str(rank), *words])


if __name__ == "__main__":
    sys.exit(main())
