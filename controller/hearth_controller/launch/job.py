"""The batch script with which Slurm starts the supervisors of a run. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from hearth.base.slurm import job_name, option_name

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
