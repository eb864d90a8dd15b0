"""Real ranks on loopback: the trainer's script under torchrun, in processes of its own.

Importing torch and all the rest takes a rank some seconds, its training in a test hardly one. Where
a test is about what ranks compute, `train_forked` has them forked from a process that has imported
everything; where it is about how they are started and ended, `train` starts them as a person does.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from hearth.config import resolve
from hearth.model.load import load_model
from support.facts import assert_names
from support.supervisors import TRAINING, free_port
from support.waiting import HANG

SCRIPT = TRAINING / "train_distributed.py"
COMPUTE = Path(__file__).with_name("compute.py")


def environment(cwd: Path) -> dict[str, str]:
    """Return the environment of a person by hand, with caches and runs of the test's own."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(cwd),
        "XDG_CACHE_HOME": str(cwd / "cache"),
        "PYTHONPATH": str(TRAINING),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def command(ranks: int, *arguments: object, python: str = sys.executable) -> list[str]:
    """Return the command that trains with `ranks` ranks; one rank goes without torchrun."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    launcher = [*torchrun, f"--nproc-per-node={ranks}"] if ranks > 1 else []
    return [python, *launcher, str(SCRIPT), *map(str, arguments)]


def arguments_of(settings: dict[str, Any]) -> list[str]:
    """Return the settings as a person types them."""
    typed = []
    for name, value in settings.items():
        option = name.replace("_", "-")
        typed += [f"--{option}", str(value)]
    return typed


def train(
    cwd: Path,
    ranks: int,
    *arguments: object,
    timeout: float = HANG,
    python: str = sys.executable,
    **changes: str,
) -> subprocess.CompletedProcess[str]:
    """Run the trainer in `cwd` and return how it ended; nothing of it outlives the call."""
    process = subprocess.Popen(
        command(ranks, *arguments, python=python),
        cwd=cwd,
        env=environment(cwd) | changes,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(10)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


TRANSFORMERS = "hearth.model.transformers_backend"
TRAINER = (
    *("hearth.trainer.assembly", "hearth.trainer.in_place", "hearth.node.speed"),
    # What a rank of the tiny model would import on its way.
    *("hearth.config.cli", "hearth.fit.catalogue", "hearth.ranks.slurm"),
    *("torch.distributed.elastic.multiprocessing.errors", "torch.utils.serialization"),
    *("transformers.models.llama.modeling_llama", "transformers.optimization"),
    *("numpy.ctypeslib", "numpy.ma"),
)

# Imports all modules that it is called with, the backend as the trainer does.
IMPORTS = f"""
import contextlib, importlib, json, os, runpy, sys
from hearth.base.entry import loading
before = dict(os.environ)
with loading(), contextlib.redirect_stdout(sys.stderr):  # Unsloth prints
    for name in sys.argv[1:]:
        if name == {TRANSFORMERS!r}:
            from hearth.model.load import import_backend
            import_backend("transformers")
            importlib.import_module("peft.tuners.lora.bnb")
            importlib.import_module("peft.utils.transformers_weight_conversion")
        importlib.import_module(name)
by_imports = dict(os.environ.items() - before.items())
"""

# Reads a line of JSON for each training, forks its ranks, and answers with their exit statuses.
_NURSERY = """
def rank(job, number):
    os.chdir(job["cwd"])
    for name, stream in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.environ.clear()
    os.environ.update(job["environment"] | by_imports)
    if job["ranks"] > 1:
        os.environ.update(RANK=str(number), LOCAL_RANK=str(number))
    if job["apart"]:
        os.makedirs(f"rank{number}", exist_ok=True)
        os.chdir(f"rank{number}")
        os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", HEARTH_NODE=f"node{number}")
    sys.argv = [job["script"], *job["arguments"]]
    status = 1
    try:
        runpy.run_path(job["script"], run_name="__main__")
        status = 0
    except SystemExit as error:
        status = error.code or 0
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        sys.stdout.flush(); sys.stderr.flush()
        os._exit(status)

for line in sys.stdin:
    job = json.loads(line) | {"group": 0}
    children = []
    for number in range(job["ranks"]):
        child = os.fork()
        if child == 0:
            rank(job, number)
        os.setpgid(child, job["group"] or child)
        job["group"] = job["group"] or child
        children.append(child)
    print(json.dumps({"group": job["group"]}), flush=True)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps({"statuses": statuses}), flush=True)
"""


@dataclass(frozen=True)
class Origin:
    """The process that ranks are forked from: its Python, imports and further variables."""

    python: str = sys.executable
    imports: tuple[str, ...] = (TRANSFORMERS, *TRAINER)
    variables: tuple[tuple[str, str], ...] = ()


@functools.cache
def _nursery(origin: Origin) -> subprocess.Popen[str]:
    """Return the process that ranks are forked from; it ends with this one."""
    home = Path(tempfile.mkdtemp(prefix="hearth-nursery-"))
    process = subprocess.Popen(
        [origin.python, "-c", IMPORTS + _NURSERY, *origin.imports],
        cwd=home,
        env=environment(home) | dict(origin.variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        process.stdin.close()
        process.wait(10)
        shutil.rmtree(home)

    atexit.register(end)
    return process


def train_forked(
    cwd: Path,
    ranks: int,
    *arguments: object,
    timeout: float = HANG,
    apart: bool = False,
    script: Path = SCRIPT,
    origin: Origin = Origin(),
    **changes: str,
) -> subprocess.CompletedProcess[str]:
    """Run the trainer in `cwd` as `train` does, in ranks that need not import anything.

    `script` is another program to run, `origin` another process to fork from. With `apart` each is
    a node of its own, with its runs in a folder `rankN` of `cwd`. What the libraries read of the
    environment when they are imported cannot be changed.
    """
    nursery = _nursery(origin)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    sizes = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    with tempfile.TemporaryDirectory() as folder:
        job = {
            "cwd": str(cwd),
            "ranks": ranks,
            "apart": apart,
            "script": str(script),
            "arguments": [str(argument) for argument in arguments],
            "environment": environment(cwd)
            | dict(origin.variables)
            | (meeting | sizes if ranks > 1 else {})
            | changes,
            "stdout": f"{folder}/stdout",
            "stderr": f"{folder}/stderr",
        }
        nursery.stdin.write(json.dumps(job) + "\n")
        nursery.stdin.flush()
        group = json.loads(nursery.stdout.readline())["group"]
        # Ranks that wait for one that has failed are killed, as torchrun would, but by the clock.
        killer = threading.Timer(timeout, os.killpg, (group, signal.SIGKILL))
        killer.start()
        statuses = json.loads(nursery.stdout.readline())["statuses"]
        killer.cancel()
        said = [Path(job[name]).read_text() for name in ("stdout", "stderr")]
    status = next((each for each in statuses if each), 0)
    return subprocess.CompletedProcess(job["arguments"], status, *said)


def python(
    cwd: Path, *words: object, timeout: float = HANG, **changes: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in `cwd`, in the environment of a person, and return how it ended."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=environment(cwd) | changes,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def succeeded(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def refused(done: subprocess.CompletedProcess[str], *facts: object) -> str:
    """Require that a run ended as a user's error does: status 2, no traceback, these facts."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert_names(done.stderr, *facts)
    return done.stderr


def metrics(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    """Return the records of one kind in a run's metrics.jsonl."""
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [record for line in lines if (record := json.loads(line))["kind"] == kind]


def figures(run_dir: Path, kind: str, name: str) -> list[Any]:
    """Return one figure of the records of one kind in a run's metrics.jsonl."""
    return [record[name] for record in metrics(run_dir, kind)]


def learned(cwd: Path, run: str, folder: str | None = None) -> dict[str, torch.Tensor]:
    """Return a run's trained tensors by name: its adapter, or with `lora: off` its model.

    `folder` is another place of the run, such as `best`.
    """
    place = cwd / "runs" / run
    place /= folder or ("model" if (place / "model").exists() else "adapter")
    whole = place / "model.safetensors"
    return load_file(whole if whole.exists() else place / "adapter_model.safetensors")


def trained(
    cwd: Path, run: str, ranks: int, *arguments: object, **origin: Origin
) -> dict[str, torch.Tensor]:
    """Train in forked ranks, which must end well, and return their adapter."""
    succeeded(train_forked(cwd, ranks, "--run-name", run, *arguments, **origin))
    return learned(cwd, run)


def stopped(cwd: Path, run: str, ranks: int, *arguments: object, **origin: Origin) -> Path:
    """Train one step, then stop as asked; return its folder."""
    folder = cwd / "runs" / run
    folder.mkdir(parents=True)
    (folder / "stop").touch()
    trained(cwd, run, ranks, *arguments, **origin)
    assert figures(folder, "step", "step") == [1]
    end = metrics(folder, "end")[0]
    assert (end["state"], end["step"]) == ("stopped", 1)
    (folder / "stop").unlink()
    return folder


def furthest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Return the largest difference of any number in two adapters."""
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)


def loaded(model: Path | str, precision: str = "fp64", **settings: Any) -> Any:
    """Return a model on the processor, as every run with these settings begins with it."""
    chosen = resolve({"model": str(model), **settings}).settings
    torch.manual_seed(chosen.seed)
    return load_model(chosen, Path(model), torch.device("cpu"), precision)


def beginning(settings: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the adapter that every run with these settings begins with, by name."""
    fresh = loaded(**settings).trainable()
    return {name.replace(".default", ""): value.detach() for name, value in fresh}


def change(end: dict[str, torch.Tensor], start: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the change of an adapter since its start as one float64 vector (parameters,)."""
    parts = [end[name].double() - start[name].double() for name in sorted(end)]
    return torch.cat([part.flatten() for part in parts])


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the distance of a change from the expected one, relative to the expected one."""
    return ((found - expected).norm() / expected.norm()).item()
