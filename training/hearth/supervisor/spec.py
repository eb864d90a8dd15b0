"""The launch spec: the settings of one node's supervisor, and the paths of a run's files there."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hearth.base.errors import LaunchError
from hearth.base.files import read_object
from hearth.base.places import NOTIFY, PUSH_TOKEN, SUPERVISOR_LOCK

_PLACE = re.compile(r"\{(results|data)\}")


@dataclass(frozen=True)
class Spec:
    """One node's part in one run. Times are seconds.

    `nodes` lists the names in rank order, `addresses` their cluster addresses, `ports` those of
    their supervisors, and `nprocs` their numbers of ranks; `token` is the secret that this run's
    supervisors share. `generation` is higher than that of any launch before. `return_timeout` is
    the time a run waits for a lost node; 0 ends it at the first loss. With `elastic` the others go
    on meanwhile, if they are at least `min_nodes`.

    Ranks that are `resident` live on through a loss, and form new groups. Others (of fsdp, of
    pipeline, of a user's script) are relaunched: the ranks of all nodes end, and start again.

    `stop_grace` is the time a SIGTERM leaves the ranks to end after their step. `unit` is whether
    the user's systemd may carry the supervisor, so that it comes back after a reboot; with `slurm`
    a job of Slurm carries it. A run with a `queue` waits for its turn on the node: its `position`,
    the time `at` which it may begin at the earliest (ISO 8601, or None), and when it was
    `submitted`, as `turn.Entry` has them. `gpus` are that many that the driver listed at the
    start; 0 if the node computes on its processor. `lend` are the node's terms of lending, as in
    `hearth.lend.terms`, for resident ranks; {}: the run keeps the node, whatever the owner wants.

    `script` is the program that torchrun starts, by its path in the workspace, with `arguments`;
    `{results}` and `{data}` in them stand for paths on this node. Without a `folder` it is Hearth's
    trainer, which polls the stop file and writes checkpoints. With one it is a user's script,
    independent of Hearth: `folder` (in the workspace) holds its copy and is its working directory,
    `data` (in the workspace) the files shipped with it.

    `afterwards` is whether the run asks for scores, a copy or a push once it has finished. `notify`
    are the addresses that get messages, separated by blanks, and `push_token` is the Hub's for that
    push: secrets, which no file of the spec holds. `hearth` is the command for the
    run's inventory, for those messages.
    """

    run: str
    node: str
    rank: int
    nodes: tuple[str, ...]
    addresses: tuple[str, ...]
    nproc: int
    python: str
    workspace: Path
    token: str = field(repr=False)
    interface: str = ""
    models: str = ""
    generation: int = 0
    ready_timeout: float = 120.0
    silence_timeout: float = 6.0
    return_timeout: float = 3600.0
    elastic: bool = False
    min_nodes: int = 1
    resident: bool = False
    ports: tuple[int, ...] = ()
    nprocs: tuple[int, ...] = ()
    stop_grace: float = 60.0
    script: str = "scripts/train_distributed.py"
    arguments: tuple[str, ...] = ("--run-file", "{results}/run.yml")
    folder: str = ""
    data: str = ""
    unit: bool = True
    gpus: int = 0
    slurm: bool = False
    queue: dict[str, Any] = field(default_factory=dict)
    lend: dict[str, Any] = field(default_factory=dict)
    hearth: str = "hearth"
    afterwards: bool = False
    notify: str = field(default="", repr=False)
    push_token: str = field(default="", repr=False)
    environment: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def address(self) -> str:
        """The cluster address of this node."""
        return self.addresses[self.rank]

    @property
    def layout(self) -> tuple[tuple[str, int], ...]:
        """Every node of the run, in rank order, with its number of ranks."""
        return tuple(zip(self.nodes, self.nprocs, strict=True))

    @property
    def scripted(self) -> bool:
        """Whether the ranks run a user's script, which is independent of Hearth."""
        return bool(self.folder)

    @property
    def place(self) -> Path:
        """Working directory of the ranks."""
        return self.workspace / self.folder if self.scripted else self.results

    @property
    def files(self) -> Path:
        """Output folder of a user's script, collected by the controller."""
        return self.results / "files"

    @property
    def words(self) -> list[str]:
        """The script's arguments, with the paths on this node filled in."""
        places = {"{results}": str(self.files if self.scripted else self.results)}
        if self.data:
            places["{data}"] = str(self.workspace / self.data)
        return [
            _PLACE.sub(lambda found: places.get(found[0], found[0]), word)
            for word in self.arguments
        ]

    @property
    def heartbeat(self) -> float:
        """Seconds between two heartbeats; several may get lost within the silence timeout."""
        return min(2.0, self.silence_timeout / 5)

    @property
    def patience(self) -> float:
        """Timeout in seconds for missing nodes once the run has started."""
        return max(self.return_timeout, self.ready_timeout)

    @property
    def first_timeout(self) -> float:
        """Timeout in seconds for missing nodes before the first launch.

        Out of a queue it is longer: another node may be ending the run before this one.
        """
        return self.patience if self.queue else self.ready_timeout

    @property
    def results(self) -> Path:
        """The run's folder on this node."""
        return results_dir(self.workspace, self.run)

    @property
    def record(self) -> Path:
        """The file with the state of the run on this node."""
        return record_file(self.workspace, self.run)

    @property
    def job_script(self) -> Path:
        """The batch script of a run under Slurm, on rank 0's node."""
        return self.results / "job.sbatch"

    @property
    def stop_file(self) -> Path:
        """The file that asks the trainer to end after the current step."""
        return stop_file(self.workspace, self.run)

    @property
    def checkpoints(self) -> Path:
        """The folder of the run's checkpoints on this node, one subfolder each."""
        return self.workspace / "checkpoints" / self.run

    @property
    def log(self) -> Path:
        """The output of torchrun, the ranks and the supervisor."""
        return self.workspace / "logs" / f"{self.run}.log"


def results_dir(workspace: Path, run: str) -> Path:
    """Return the folder of a run in a workspace."""
    return workspace / "results" / run


def record_file(workspace: Path, run: str) -> Path:
    """Return the supervisor's record of a run."""
    return results_dir(workspace, run) / "supervisor.json"


def stop_file(workspace: Path, run: str) -> Path:
    """Return the file that asks for a stop."""
    return results_dir(workspace, run) / "stop"


def lock_file(workspace: Path) -> Path:
    """Return the lock that restricts the node to one run at a time."""
    return workspace / SUPERVISOR_LOCK


def secrets_file(spec_file: Path) -> Path:
    """Return the file of secrets (an API key) for the ranks only, beside a launch spec."""
    return spec_file.with_suffix(".secrets")


def load_spec(path: Path) -> Spec:
    """Read a launch spec.

    Raises:
        LaunchError: the file is missing or not a JSON object, or with all its faults at once.
    """
    given = read_object(path)
    if given is None:
        raise LaunchError(f"{path}: cannot be read as a launch spec (a JSON object)")
    return spec_of(given, str(path))


def spec_of(given: Mapping[str, Any], where: str) -> Spec:
    """Return the spec that `given` describes. Raises `LaunchError` with faults, naming `where`."""
    if faults := _faults(given):
        raise LaunchError(*(f"{where}: {fault}" for fault in faults))
    lists = ("nodes", "addresses", "arguments", "ports", "nprocs")
    parsed = {
        "workspace": Path(given["workspace"]).expanduser(),
        **{key: tuple(given[key]) for key in lists if key in given},
    }
    return Spec(**{**given, **parsed})


def with_secrets(spec: Spec, spec_file: Path) -> Spec:
    """Return the spec with the secrets beside its file, if any, added to its environment.

    The addresses that get messages and the token for a push are this supervisor's alone: the ranks
    do not get them. A job of Slurm has them in its environment; they are removed from it.

    Raises `LaunchError` if they cannot be read; the message shows no content of the file.
    """
    path = secrets_file(spec_file)
    own = {
        field: os.environ.pop(name, "")
        for field, name in (("notify", NOTIFY), ("push_token", PUSH_TOKEN))
    }
    if not path.exists():
        return dataclasses.replace(spec, **own)
    secrets = read_object(path)
    if secrets is None:
        raise LaunchError(f"{path}: cannot be read; start the run anew")
    secrets = {name: str(text) for name, text in secrets.items()}
    own["notify"] = secrets.pop(NOTIFY, own["notify"])
    own["push_token"] = secrets.pop(PUSH_TOKEN, own["push_token"])
    return dataclasses.replace(spec, environment=spec.environment | secrets, **own)


def forget_secrets(spec_file: Path) -> None:
    """Delete the secrets beside a launch spec."""
    secrets_file(spec_file).unlink(missing_ok=True)


def _faults(given: Mapping[str, Any]) -> list[str]:
    """Return every fault of a spec, without showing possible secrets.

    The controller writes specs and has checked the types; here only keys and what a person chose.
    """
    fields = {each.name: each for each in dataclasses.fields(Spec)}
    faults = [
        f"unknown key '{key}': another version of Hearth wrote it; start the run anew"
        for key in given
        if key not in fields
    ]
    faults += [
        f"'{name}' is missing"
        for name, each in fields.items()
        if name not in given and each.default is each.default_factory is dataclasses.MISSING
    ]
    if faults:
        return faults
    for name in ("ready_timeout", "silence_timeout"):
        if given.get(name, 1) <= 0:
            faults.append(f"'{name}' must be above 0 s, not {given[name]:g} s")
    if given.get("return_timeout", 0) < 0:
        faults.append(f"'return_timeout' must be 0 s or more, not {given['return_timeout']:g} s")
    if given.get("resident"):
        if given.get("folder"):
            faults.append("'resident' ranks are Hearth's own, but 'folder' holds a user's script")
    elif given.get("elastic") and given.get("return_timeout") == 0:
        faults.append(
            "'elastic' goes on without a lost node, but with launch_return_timeout=0 "
            "('return_timeout') the first loss ends the run; leave one of them out"
        )
    return faults
