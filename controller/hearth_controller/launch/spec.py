"""The launch spec of each node for its supervisor, and the batch script that Slurm starts. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hearth.base.slurm import job_name, option_name
from hearth_controller.launch.answers import Inspection
from hearth_controller.launch.request import LaunchOptions, LaunchRequest


@dataclass(frozen=True)
class NodeRanks:
    """The number of ranks of a node, and of the GPUs that they compute on."""

    count: int
    gpus: int


def node_specs(
    request: LaunchRequest,
    addresses: Mapping[str, str],
    nodes: Mapping[str, Inspection],
    ranks: Mapping[str, NodeRanks],
    timeouts: Mapping[str, float],
    slurm: bool = False,
) -> dict[str, dict[str, Any]]:
    """Return the spec by node for a run on the nodes that have `ranks`, in their order.

    `nodes` are also those that do not train: none of them may know a later generation of the run.
    Of other nodes a spec says no more than their names, addresses, ports and numbers of ranks;
    `timeouts` are in seconds; with `slurm` a job starts the supervisors. See
    `hearth.supervisor.spec.Spec`.
    """
    options = request.options
    common = {
        "run": request.name,
        "nodes": list(ranks),
        "addresses": [addresses[name] for name in ranks],
        "ports": [options.meeting_port or nodes[name].port for name in ranks],
        "nprocs": [its.count for its in ranks.values()],
        "resident": request.resident,
        "generation": max(node.generation for node in nodes.values()),
        **_place_in_queue(options, nodes),
        **timeouts,
        "slurm": slurm,
        "elastic": is_elastic(request, timeouts),
        "afterwards": request.afterwards,
        "min_nodes": min(options.min_nodes or 1, len(ranks)),
        **(request.files.spec if request.files else {}),
    }
    # A supervisor takes its ranks off the Hub, and a stream is read there.
    online = {"HF_HUB_OFFLINE": "0"} if request.streams else {}
    return {
        name: common
        | _own_part(name, rank, nodes[name].own, its, online)
        | {"lend": nodes[name].own.get("lend", {}) if request.lends else {}}
        for rank, (name, its) in enumerate(ranks.items())
    }


def _place_in_queue(options: LaunchOptions, nodes: Mapping[str, Inspection]) -> dict[str, Any]:
    """Return the place of a run in the queue of its nodes: the last one; {} without a queue.

    Positions are seconds since 1970, so that runs on different nodes hardly ever have the same.
    """
    if not (queue := options.queue):
        return {}
    last = max(node.queue_end for node in nodes.values())
    submitted = datetime.fromisoformat(str(queue["submitted"])).timestamp()
    return {"queue": {"position": max(submitted, last + 1), **queue}}


def is_elastic(request: LaunchRequest, timeouts: Mapping[str, float]) -> bool:
    """Return whether the other nodes go on without a lost one.

    Without a typed `-e elastic` they do where ranks are resident, unless the first loss is to
    end the run (`return_timeout` 0).
    """
    if request.options.elastic is None:
        return request.resident and timeouts["return_timeout"] > 0
    return request.options.elastic


def _own_part(
    name: str, rank: int, own: Mapping[str, Any], ranks: NodeRanks, online: Mapping[str, str]
) -> dict[str, Any]:
    """Return the part of a spec that is about its node; its ranks get the variables `online`."""
    return {
        "node": name,
        "rank": rank,
        "nproc": ranks.count,
        "gpus": ranks.gpus,
        **{place: own[place] for place in ("python", "workspace", "models")},
        # Two nodes on one computer would share the unit, and it is not ours to change.
        "unit": not own["one_computer"],
        "environment": {**online, **own["variables"]}
        | ({"OMP_NUM_THREADS": str(own["threads"])} if own["threads"] else {}),
    }


_DEFAULTS = (
    # A run takes the whole of its nodes.
    ("--exclusive", ("--exclusive", "--oversubscribe", "-s", "--cpus-per-task", "-c")),
    ("--mem=0", ("--mem", "--mem-per-cpu", "--mem-per-gpu")),
    ("--requeue", ("--requeue", "--no-requeue")),
)
"""Options of a job, and those of a person that replace each."""

_SCRIPT = """\
#!/bin/bash
# Run {run} as a job of Slurm: one supervisor on each node. Written by Hearth (docs/scripts.md).
{options}

for results in {results}; do
  if [ -d "$results" ]; then exec >>"$results/job.log" 2>&1; break; fi
done
supervisor=$(cat <<'END'
case $SLURMD_NODENAME in
{cases}
esac
export PYTHONPATH=$workspace/scripts
exec "$python" -m hearth.supervisor run --spec "$workspace/config/{run}.json"
END
)
srun --wait=0 --kill-on-bad-exit=0 --cpu-bind=none --label bash -c "$supervisor"
"""


def job_script(
    run: str,
    specs: Mapping[str, Mapping[str, Any]],
    nodes: Mapping[str, str],
    gpus: Mapping[str, int],
    options: Sequence[str],
) -> str:
    """Return the text of the batch script of the run named `run`.

    `specs` are the launch specs in order of rank, `nodes` Slurm's names and `gpus` the number of
    GPUs to request, all by node; `options` are a person's options of sbatch.
    """
    elastic = any(spec["elastic"] for spec in specs.values())
    given = {*map(option_name, options)}
    chosen = [
        f"--job-name={job_name(run)}",
        f"--nodes={len(specs)}",
        f"--nodelist={','.join(nodes[node] for node in specs)}",
        "--ntasks-per-node=1",
        *_gpu_options([gpus[node] for node in specs], given),
        *(option for option, others in _DEFAULTS if not given & {*others}),
        *(["--no-kill"] if elastic else []),
        "--chdir=/",
        # Slurm opens it on the job's first node, where the folder of another node may be missing.
        "--output=/dev/null",
        *options,
    ]
    results = dict.fromkeys(f"{spec['workspace']}/results/{run}" for spec in specs.values())
    return _SCRIPT.format(
        run=run,
        options="\n".join(f"#SBATCH {shlex.quote(option)}" for option in chosen),
        results=" ".join(map(shlex.quote, results)),
        cases="\n".join(_case(nodes[node], spec) for node, spec in specs.items()),
    )


def _gpu_options(counts: Sequence[int], given: set[str]) -> list[str]:
    """Return the option that requests GPUs: none without GPUs or where a person requests them."""
    own = any(name in ("--gres", "-G") or name.startswith("--gpus") for name in given)
    if own or not any(counts):
        return []
    if len({*counts}) == 1:
        return [f"--gpus-per-node={counts[0]}"]
    return [f"--gpus={sum(counts)}"]  # the nodes are given, so that each gives all it has


def _case(node: str, spec: Mapping[str, Any]) -> str:
    """Return the line with a node's paths."""
    places = (f"{place}={shlex.quote(str(spec[place]))}" for place in ("workspace", "python"))
    return f"  {node}) {' '.join(places)} ;;"
