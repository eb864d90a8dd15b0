"""torchrun and its descendants: started together, ended to the last process."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from hearth.base.aside import pids_aside
from hearth.base.interface import family_of
from hearth.base.places import OF_A_LAUNCH, OF_HEARTH, SUPERVISED, TORCHRUN, python_path
from hearth.base.systems import CUDA
from hearth.ranks.control_protocol import Form
from hearth.supervisor.spec import Spec

NOT_FOR_RANKS = "HEARTH_NOT_FOR_RANKS"
"""Environment variable of torchrun: names of variables to hide from the ranks (see `torchrun`)."""

STORE_CLIENTS = "HEARTH_STORE_CLIENTS"
"""Environment variable of torchrun: the addresses that rank 0's store answers."""

UNKILLABLE = 10.0
"""Seconds after SIGKILL before a process counts as unkillable."""

KILL_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for ranks whose group is over, or whose run has ended."""

POLL = 0.05

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


def command(spec: Spec, group: Form) -> list[str]:
    """Return torchrun's command line for this node's ranks of a group.

    The static rendezvous, because c10d ignores --node-rank; no restarts, because ranks that
    restart alone never meet again.
    """
    options = {
        "rdzv-backend": "static",
        "nnodes": len(group.nodes),
        "node-rank": group.nodes.index(spec.node),
        "nproc-per-node": spec.nproc,
        "max-restarts": 0,
        "master-addr": group.address,
        "master-port": group.port,
        "local-addr": spec.address,
        "log-dir": scratch(spec),
    }
    if not spec.scripted:
        options["start-method"] = "fork"
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    torchrun = [spec.python, "-m", TORCHRUN]
    # After `--`, torchrun does not parse the script's arguments as its own options.
    return [*torchrun, *flags, "--", str(spec.workspace / spec.script), *spec.words]


def environment(spec: Spec, group: Form) -> dict[str, str]:
    """Return the environment of this node's torchrun and ranks: nothing of another node's.

    NCCL takes a name as a prefix unless it starts with `=`; Gloo wants the bare name.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        # The ranks are no tasks of Slurm, whose task is the supervisor.
        if name not in OF_A_LAUNCH and not name.startswith((*OF_HEARTH, "SLURM_"))
    }
    if spec.nproc > 1:  # as torchrun does, but too late for ranks that it forks
        inherited.setdefault("OMP_NUM_THREADS", "1")
    own = {
        "HEARTH_WORKSPACE": str(spec.workspace),
        "HEARTH_NODE": spec.node,
        "HEARTH_GENERATION": str(group.generation),
        STORE_CLIENTS: " ".join(group.clients),
        SUPERVISED: str(spec.workspace),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": python_path(spec.workspace / "scripts", os.environ),
        # The run's folder is the ranks' working directory and holds data: Python must not
        # import modules from it, nor Unsloth, which writes code and imports it.
        "PYTHONSAFEPATH": "1",
        "GLOO_SOCKET_IFNAME": spec.interface,
        "NCCL_SOCKET_IFNAME": f"={spec.interface}",
        "NCCL_SOCKET_FAMILY": family_of(spec.address),
    }
    if not shutil.which("nvcc") and os.path.isdir(CUDA):  # for scripts that compile
        own["PATH"] = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{CUDA}"
    if spec.models:
        own["HEARTH_MODELS"] = spec.models
    if spec.scripted:
        own |= {"HEARTH_RUN": spec.run, "HEARTH_RESULTS": str(spec.files)}
        # A user's script runs in its own folder and must not import Hearth's code.
        own[NOT_FOR_RANKS] = "PYTHONPATH PYTHONSAFEPATH"
        if spec.data:
            own["HEARTH_DATA"] = str(spec.workspace / spec.data)
    else:
        # The checks have filled the caches; online lookups would need a token and cost time.
        own["HF_HUB_OFFLINE"] = "1"
    return {**inherited, **own, **spec.environment}


class Workers:
    """One torchrun and its descendants."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._process: asyncio.subprocess.Process | None = None
        # Ranks of a killed torchrun become children of this process, so that it finds them.
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    async def start(self, words: list[str], group: Form, **variables: str) -> None:
        """Start torchrun for a group in a session of its own, writing to the run's log.

        `variables` are added to its environment.
        """
        supervisor = os.getpid()

        def die_with_supervisor() -> None:
            # SIGTERM, not SIGKILL: torchrun then ends its ranks before it goes.
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != supervisor:
                os._exit(1)

        scratch(self._spec).mkdir(parents=True, exist_ok=True)
        with self._spec.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *words,
                cwd=self._spec.place,
                env=environment(self._spec, group) | variables,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_supervisor,
            )

    async def ended(self) -> int:
        """Wait for torchrun, end its leftover processes, and return its exit status.

        A negative status is the signal that killed it.
        """
        assert self._process is not None
        status = await self._process.wait()
        await self._clear(grace=2.0 if status == 0 else 0.0)
        return status

    @property
    def ranks(self) -> int:
        """The number of ranks that torchrun has started."""
        with suppress(psutil.NoSuchProcess):
            if self._process and self._process.returncode is None:
                return len(psutil.Process(self._process.pid).children())
        return 0

    async def tell_to_end(self) -> None:
        """Send each rank SIGTERM, once, until torchrun has ended.

        Not torchrun itself, which would kill its ranks 30 s later. A starting one has no ranks yet.
        """
        told: set[int] = set()
        while self._process and self._process.returncode is None:
            with suppress(psutil.NoSuchProcess):
                for rank in psutil.Process(self._process.pid).children():
                    if rank.pid not in told:
                        told.add(rank.pid)
                        rank.terminate()
            await asyncio.sleep(POLL)

    async def kill(self) -> None:
        """Kill torchrun and all its descendants, which may be stopped or ignore signals."""
        await end(self._descendants())

    async def stop(self, grace: float) -> int | None:
        """End everything: SIGTERM to torchrun, SIGKILL to what remains after `grace` seconds.

        Returns torchrun's exit status, None if it was never started.
        """
        if self._process and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace)
        await self._clear(grace=0.0)
        shutil.rmtree(scratch(self._spec), ignore_errors=True)
        if self._process is None:
            return None
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), UNKILLABLE)
        return self._process.returncode

    async def _clear(self, grace: float) -> None:
        """End all descendants of this process, waiting `grace` seconds before killing."""
        until = time.monotonic() + grace
        while self._descendants() and time.monotonic() < until:
            await asyncio.sleep(POLL)
        # Processes found only after their parent was killed need another round.
        until = time.monotonic() + UNKILLABLE
        while (living := self._descendants()) and time.monotonic() < until:
            await end(living)

    def _descendants(self) -> list[psutil.Process]:
        """Return the living processes of ranks; orphans that ended are reaped on the way."""
        children = psutil.Process().children()
        aside = pids_aside()
        children = [process for process in children if process.pid not in aside]
        for process in children:
            # asyncio reaps torchrun itself.
            if self._process is None or process.pid != self._process.pid:
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
        return [process for process in _with_descendants(children) if _lives(process)]


async def end(processes: list[psutil.Process]) -> None:
    """Kill processes, and wait until they are gone.

    Gives up on processes held in the kernel (a hung driver): no signal ends those.
    """
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    until = time.monotonic() + UNKILLABLE
    while any(_lives(process) for process in processes) and time.monotonic() < until:
        await asyncio.sleep(POLL)


def leftovers(workspace: Path) -> list[psutil.Process]:
    """Return processes that a supervisor of this workspace started.

    Call it with the node's lock held: then that supervisor is dead and they are orphans.
    """
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(SUPERVISED) == str(workspace) and _lives(process):
                found.append(process)
    return found


def _with_descendants(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return processes and all below them."""
    found = list(processes)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found += process.children(recursive=True)
    return found


def _lives(process: psutil.Process) -> bool:
    """Return whether a process is alive; one that ended may remain until its parent reaps it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def scratch(spec: Spec) -> Path:
    """Return the folder for torchrun's own files, which it would leave in /tmp."""
    return spec.workspace / "logs" / f".{spec.run}.torchrun"
