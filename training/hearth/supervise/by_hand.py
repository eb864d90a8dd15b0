"""Start this node's ranks of a run by hand, for debugging: torchrun in the foreground.

The run goes on from its newest checkpoint, as after a lost node, once its other nodes are started
likewise. Nothing looks after them: whoever started them ends them, by Ctrl-C on each node.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hearth.base.entry import print_findings
from hearth.base.errors import HearthError, LaunchError
from hearth.base.files import read_object
from hearth.supervise.cause import Cause, State
from hearth.supervise.interface import free_port, source_towards
from hearth.supervise.messages import Go
from hearth.supervise.preflight import ready
from hearth.supervise.record import RunRecord, node_lock
from hearth.supervise.spec import Spec, load_spec
from hearth.supervise.workers import command, end, environment, leftovers, scratch

CONFIG = "cluster_config.yaml"
"""File in a workspace with the nodes of the cluster, as provisioning found them."""

_LAUNCHER = "./launch_cluster.sh"


def main(arguments: list[str] | None = None) -> int:
    """Start torchrun; return its exit status, or 2 if it cannot be started."""
    parser = argparse.ArgumentParser(prog=_LAUNCHER, description=__doc__)
    parser.add_argument("rank", type=int, help="the rank of this node in the run")
    parser.add_argument("--run", help="the name of the run; by default the one started last here")
    parser.add_argument("--workspace", type=Path, required=True, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    try:
        spec = spec_by_hand(given.workspace, given.rank, given.run)
        with node_lock(spec.workspace, spec.run):
            return _launch(spec)
    except HearthError as error:
        return print_findings(error)


def spec_by_hand(workspace: Path, rank: int, run: str | None) -> Spec:
    """Return the spec with which `run`, or the run started last, was started on this node.

    Addresses and interface are those of CONFIG. Raises `LaunchError` if there is no such run, this
    node has another rank in it, or the network differs from CONFIG.
    """
    own, nodes = _read_config(workspace / CONFIG)
    specs = sorted((workspace / "config").glob("*.json"), key=lambda path: path.stat().st_mtime)
    found = [path for path in specs if run in (None, path.stem)]
    if not found:
        known = ", ".join(path.stem for path in specs) or "none"
        raise LaunchError(
            f"{workspace}: no run {f'{run!r} ' if run else ''}was started here (known: {known}); "
            "`ansible-playbook train.yml` starts one, which can then be continued by hand"
        )
    spec = load_spec(found[-1])
    if missing := [name for name in spec.nodes if name not in nodes]:
        raise LaunchError(
            f"{workspace / CONFIG}: {', '.join(missing)} of run '{spec.run}' is missing; "
            "`provision.yml --tags workspace` writes the file anew"
        )
    if rank != spec.rank:
        raise LaunchError(
            f"{own} is rank {spec.rank} of run '{spec.run}' ({', '.join(spec.nodes)}), not "
            f"{rank}: type {_LAUNCHER} {spec.rank} --run {spec.run}"
        )
    addresses = tuple(str(nodes[name]["address"]) for name in spec.nodes)
    meeting = dataclasses.replace(spec.meeting, address=addresses[0])
    interface = nodes[own].get("interface") or ""
    return ready(
        dataclasses.replace(spec, addresses=addresses, meeting=meeting, interface=interface)
    )


def _read_config(path: Path) -> tuple[str, dict[str, Mapping[str, Any]]]:
    """Return this node's name, and all nodes by name. Raises `LaunchError` if that is not there."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        nodes = {node["name"]: node for node in config["nodes"]}
        return nodes[config["node"]]["name"], nodes
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        why = " ".join(str(error).split())
        raise LaunchError(
            f"{path}: cannot be read ({type(error).__name__}: {why}); "
            "`provision.yml --tags workspace` writes the file anew"
        ) from error


def _launch(spec: Spec) -> int:
    """Run torchrun with the lock of the node held, and keep the record of the run."""
    asyncio.run(end(leftovers(spec.workspace)))
    if spec.rank == 0:
        free_port(spec.meeting.address, spec.meeting.port)
    last = (read_object(spec.record) or {}).get("generation", -1)
    generation = max(last + 1, spec.generation)
    # Where the nodes are one computer, they connect from another address than their own.
    sources = {*spec.addresses, source_towards(spec.meeting.address)}
    go = Go(spec.meeting.port, generation, spec.nodes, tuple(sorted(sources)))
    words = command(spec, go)
    spec.stop_file.unlink(missing_ok=True)
    record = RunRecord.from_spec(spec, generation=generation, state="running", command=words)
    record.write(spec.record)
    for rank, (name, address) in enumerate(zip(spec.nodes, spec.addresses, strict=True)):
        if rank != spec.rank:
            print(f"hearth: on {name} ({address}): {_LAUNCHER} {rank} --run {spec.run}")
    print(f"hearth: {shlex.join(words)}", flush=True)
    process = subprocess.Popen(words, cwd=spec.place, env=environment(spec, go))
    # Ctrl-C reaches torchrun by itself, which ends its ranks; this process waits for it.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    record.exit_code = process.wait()
    if record.exit_code:
        message = f"torchrun, started by hand, ended with status {record.exit_code}"
        record.cause = Cause(spec.node, None, "rank_failed", message)
    ended: State = "stopped" if spec.stop_file.exists() else "finished"
    shutil.rmtree(scratch(spec), ignore_errors=True)
    record.enter("failed" if record.exit_code else ended)
    record.write(spec.record)
    return abs(record.exit_code)


if __name__ == "__main__":
    sys.exit(main())
