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
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hearth.base.entry import print_findings
from hearth.base.errors import HearthError, LaunchError
from hearth.base.interface import free_port
from hearth.supervisor.cause import Cause, State, generation_of
from hearth.supervisor.cluster_file import CONFIG, LAUNCHER, read_cluster
from hearth.supervisor.new_by_hand import (
    PORT,
    group_by_hand,
    new_command,
    new_spec,
    stage_files,
    typed_run,
)
from hearth.supervisor.preflight import ready
from hearth.supervisor.record import RunRecord, node_lock
from hearth.supervisor.recorded import record_in
from hearth.supervisor.spec import Spec, load_spec
from hearth.supervisor.workers import command, end, environment, leftovers, scratch


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
    """Return the specs with which train.yml has started runs on this node, the newest last."""
    return sorted((workspace / "config").glob("*.json"), key=lambda path: path.stat().st_mtime)


def spec_by_hand(workspace: Path, rank: int, run: str | None) -> Spec:
    """Return the spec with which `run`, or the run started last, was started on this node.

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
        asyncio.run(end(leftovers(workspace)))
        stage_files(run, workspace)
        words, variables = new_command(spec)
        status = _in_foreground(words, Path.cwd(), variables)
        shutil.rmtree(scratch(spec), ignore_errors=True)
    return abs(status)


def _launch(spec: Spec) -> int:
    """Run torchrun with the lock of the node held, and keep the record of the run."""
    asyncio.run(end(leftovers(spec.workspace)))
    if spec.rank == 0:
        free_port(spec.address, spec.ports[0])
    last = generation_of(record_in(spec.record))
    generation = max(last + 1, spec.generation)
    group = group_by_hand(spec, generation)
    words = command(spec, group)
    spec.stop_file.unlink(missing_ok=True)
    record = RunRecord.from_spec(spec, generation=generation, state="running", command=words)
    record.write(spec.record)
    for rank, (name, address) in enumerate(zip(spec.nodes, spec.addresses, strict=True)):
        if rank != spec.rank:
            print(f"hearth: on {name} ({address}): {LAUNCHER} {rank} --run {spec.run}")
    record.exit_code = _in_foreground(words, spec.place, environment(spec, group))
    if record.exit_code:
        message = f"torchrun, started by hand, ended with status {record.exit_code}"
        record.cause = Cause(spec.node, None, "rank_failed", message)
    ended: State = "stopped" if spec.stop_file.exists() else "finished"
    shutil.rmtree(scratch(spec), ignore_errors=True)
    record.enter("failed" if record.exit_code else ended)
    record.write(spec.record)
    return abs(record.exit_code)


def _in_foreground(words: Sequence[str], place: Path, variables: Mapping[str, str]) -> int:
    """Run a command in the folder `place` until it ends; return its exit status."""
    print(f"hearth: {shlex.join(words)}", flush=True)
    process = subprocess.Popen(words, cwd=place, env=variables)
    # Ctrl-C reaches torchrun by itself, which ends its ranks; this process waits for it.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
