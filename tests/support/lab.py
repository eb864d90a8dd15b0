"""`scripts/lab` for tests: machines for as long as a test needs them, and commands on them.

HEARTH_LAB names the lab, so that tests can run beside one that is up.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
import yaml

from hearth_lab import machine, network, plan
from support.local_cluster import TINY, LocalCluster, ended
from support.repository import ROOT
from support.waiting import HANG

LAB = "-".join(["hearth-lab", *filter(None, [os.environ.get("HEARTH_LAB")])])

PROGRAMS = ("systemd-nspawn", "systemd-networkd", "dnsmasq", "nsenter", "nc")
# Kernel settings that hold for the whole computer, and that systemd would set.
SETTINGS = ("kernel/core_pattern", "kernel/pid_max", "kernel/hostname", "fs/suid_dumpable")
STATE = Path("/run", LAB)
_LOCK = Path("/run/lock", LAB)
# The Python of the image, which has everything already: for tests that are not about installing.
PYTHON = "/opt/lab/venv/bin/python"
READY = ("-e", f"hearth_python={PYTHON}")
_Answer = TypeVar("_Answer")
_HELD: list[int] = []  # the lock, open until this process ends in whatever way
_NEEDED = ("systemd-nspawn", "mmdebstrap", "dnsmasq", "nc")
_UP_SECONDS = 900  # the first time builds the base image
_DOWN_SECONDS = 300  # the disks of machines with whole environments go too


def lab(*arguments: str, timeout: float = HANG, status: int | None = 0, given: bytes = b"") -> str:
    """Call scripts/lab, with this as its standard input; return its output."""
    done = subprocess.run(
        [ROOT / "scripts" / "lab", *arguments], input=given, capture_output=True, timeout=timeout
    )
    said = (done.stdout + done.stderr).decode(errors="replace")
    print(f"$ lab {' '.join(arguments)}\n{said}")
    if status is not None:
        assert done.returncode == status, said
    return said


def on(node: str, command: str, given: bytes = b"") -> str:
    """Run a command as the user who logs in on a machine; return its output."""
    return lab("ssh", node, command, given=given).strip()


def inside(
    node: str,
    command: str,
    given: bytes | None = None,
    status: int | None = None,
) -> str:
    """Run a command as root on a machine, without its network; return its output.

    How it ends does not matter unless a `status` is expected. Raises OSError while the machine is
    off, which `until` waits out.
    """
    enter = machine.within(plan.machine_named(node))
    if not enter:  # the command would run on this computer
        raise OSError(f"{node} is off")
    done = subprocess.run(
        [*enter, "/bin/sh", "-c", command],
        input=given,
        capture_output=True,
        timeout=HANG,
    )
    said = (done.stdout + done.stderr).decode(errors="replace")
    print(f"{node}# {command}\n{said}")
    assert status in (None, done.returncode), said
    return said.strip()


def as_root(node: str, command: str, given: bytes | None = None) -> str:
    """Run a command that must not fail as root on a machine; return its output."""
    return inside(node, command, given=given, status=0)


def at_home(node: str, command: str, given: bytes | None = None, status: int | None = None) -> str:
    """Run a command as a machine's user and in the home, without SSH; return its output.

    So little work that it can be asked again and again. How it ends does not matter unless a
    `status` is expected.
    """
    manager = "export HOME=/home/lab XDG_RUNTIME_DIR=/run/user/$(id -u); cd"
    words = ("runuser", "-u", plan.USER, "--", "sh", "-c", f"{manager}; {command}")
    return inside(node, shlex.join(words), given=given, status=status)


def as_user(node: str, command: str, given: bytes | None = None) -> str:
    """Do what `at_home` does with a command that must not fail; return its output."""
    return at_home(node, command, given=given, status=0)


def tree(node: str, folders: str = "etc") -> dict[str, str]:
    """Return kind, mode, owner, target and checksum of everything in folders of a machine.

    By path from the root; without the lab's own folder, Ansible's, and what sudo notes once.
    """
    none = r"\( -name .ansible -o -name .sudo_as_admin_successful -o -path opt/lab \) -prune"
    find = f"find {folders} {none} -o"
    kinds = rf"{find} -printf '%y %m %u:%g %l\t%p\n' 2>/dev/null"
    sums = f"{find} -type f -exec sha256sum {{}} + 2>/dev/null"
    found: dict[str, str] = {}
    for line in inside(node, f"cd / && {kinds}; {sums}").splitlines():
        state, _, path = line.partition("\t" if "\t" in line else "  ")
        found[path] = f"{found.get(path, '')} {state}"
    assert found
    return found


def at_once(action: Callable[[str], _Answer], nodes: Iterable[str]) -> dict[str, _Answer]:
    """Do something with several machines at the same time; return what came of it, by name."""
    nodes = list(nodes)
    with ThreadPoolExecutor(len(nodes)) as pool:
        return dict(zip(nodes, pool.map(action, nodes), strict=True))


def packed(*places: tuple[Path, str]) -> bytes:
    """Return an archive of files and folders, each under the name that comes with it."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, name in places:
            tar.add(path, name)
    return archive.getvalue()


def bring(folder: Path, nodes: Iterable[str]) -> None:
    """Put a folder of this computer on machines, at the same path and readable for everybody."""
    archive = packed((folder, str(folder).lstrip("/")))
    unpack = f"tar -C / -x && chmod -R a+rX {folder}"
    at_once(lambda node: as_root(node, unpack, archive), nodes)


def row(node: str) -> list[str]:
    """Return a machine's line of `lab status`: name, power, address, card and so on."""
    return next(line.split() for line in lab("status").splitlines() if line.startswith(node))


def answers(node: str) -> bool:
    """Return whether a machine's SSH port answers at the address that the router gives it."""
    return network.answers(plan.machine_named(node))


def is_on(node: str) -> bool:
    """Return whether a machine has power and has not shut down."""
    return machine.is_on(plan.machine_named(node))


def need_the_lab() -> None:
    """Skip the test where there can be no lab; in CI it fails instead.

    A lab that tests left up when they were killed is taken down; one of a person stays.
    """
    reason = ""
    if os.geteuid() != 0:
        reason = "the lab needs root"
    elif missing := [command for command in _NEEDED if not shutil.which(command)]:
        reason = f"the lab needs {', '.join(missing)}; ./scripts/test as root installs them"
    elif not _ours():
        reason = "other tests that are under way have the lab"
    elif STATE.exists() and _of_tests_alone():
        lab("down", timeout=_DOWN_SECONDS)
    elif STATE.exists():
        reason = "a lab is up already; end it with scripts/lab down"
    if reason and os.environ.get("CI") == "true":
        pytest.fail(f"{reason}: in CI the lab's tests must run")
    elif reason:
        pytest.skip(f"THE LAB IS NOT TESTED: {reason}")


def _ours() -> bool:
    """Return whether no other tests have the lab; none can have it then until these have ended."""
    if not _HELD:
        lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        _HELD.append(lock)
    return True


def _of_tests_alone() -> bool:
    """Return whether only tests use a lab of this name: a worker's, or any in CI."""
    return "PYTEST_XDIST_WORKER" in os.environ or os.environ.get("CI") == "true"


def computer_before() -> dict[str, list[str]]:
    """Return a snapshot of the computer without the lab; skip where no lab is possible."""
    need_the_lab()
    return snapshot()


@contextmanager
def machines(count: int = 3, *options: str) -> Iterator[None]:
    """Have a lab of `count` machines, where there can be one; it is taken down in any case."""
    need_the_lab()
    try:
        lab("up", "--nodes", str(count), *options, timeout=_UP_SECONDS)
        yield
    finally:
        lab("down", timeout=_DOWN_SECONDS)


def short_run(steps: int, model: str, sequence_length: int = 128) -> list[str]:
    """Return the typed words of a run of this many steps."""
    few = {"max_steps": steps, "sequence_length": sequence_length, "eval_held_out": "off"}
    settings = {**TINY, "model": model, **few}
    return [word for name, value in settings.items() for word in ("-e", f"{name}={value}")]


def inventory(folder: Path, hosts: dict[str, dict[str, object]]) -> Path:
    """Write an inventory of lab machines, with these variables each; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "inventory/lab/group_vars", folder / "group_vars", dirs_exist_ok=True)
    text = yaml.safe_dump({"cluster": {"hosts": hosts}}, sort_keys=False)
    (folder / "hosts.yml").write_text(text)
    return folder


def of_the_first(count: int, folder: Path) -> Path:
    """Write an inventory of the first machines at the router's addresses; return its folder."""
    nodes = plan.nodes(count)
    return inventory(folder, {node.name: {"cluster_address": node.address} for node in nodes})


class Controller(LocalCluster):
    """A clone of the repository, in a home of its own, that plays on the lab."""

    def __init__(
        self,
        folder: Path,
        model: Path = Path("no-model"),
        data: Path = Path("no-data"),
        inventory: str | Path = "inventory/lab",
    ) -> None:
        super().__init__(folder, model, data)
        self.inventory = str(inventory)

    def start(self, playbook: str, *arguments: object, **changes: str) -> subprocess.Popen[str]:
        return super().start(playbook, *arguments, "-i", self.inventory, **changes)

    def module(self, nodes: str, name: str, arguments: str = "", *options: str) -> str:
        """Call one module on machines; return what the screen showed, also of a failure."""
        place = ("-i", self.inventory)
        done = self.call("ansible", nodes, *place, "-m", name, "-a", arguments, *options)
        return done.stdout + done.stderr


class Play:
    """A playbook that runs from the repository's root and can be frozen, thawed or killed."""

    def __init__(self, inventory: Path, playbook: str | Path, *arguments: object) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._process = subprocess.Popen(
            ["ansible-playbook", "-i", inventory, *map(str, (playbook, *arguments))],
            cwd=ROOT,
            env=os.environ | {"PATH": path, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _everybody(self) -> list[psutil.Process]:
        try:
            play = psutil.Process(self._process.pid)
            return [play, *play.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _signal(self, sign: signal.Signals) -> None:
        """Send a signal to everybody who is still there when it comes."""
        for process in self._everybody():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(sign)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the play as if its computer had died; no harm if it has ended."""
        self._signal(signal.SIGKILL)
        self._process.wait(10)

    def end(self, status: int | None = 0) -> str:
        """Return the screen of the play once it has ended (see `support.local_cluster.ended`)."""
        return ended(self._process, status)


def write_down(**found: object) -> None:
    """Add a line to the record that HEARTH_RECORD names; without it, nothing."""
    if path := os.environ.get("HEARTH_RECORD"):
        with Path(path).open("a") as file:
            file.write(json.dumps(found) + "\n")


def snapshot() -> dict[str, list[str]]:
    """Return everything that the lab could leave behind, one list of lines a kind."""
    return {
        "interfaces": _lines("ip", "-brief", "link"),
        "addresses": _lines("ip", "-brief", "address"),
        "routes": [*_lines("ip", "route"), *_lines("ip", "-6", "route")],
        "network namespaces": _names(Path("/run/netns")),
        "the lab's folder": _names(Path("/run", LAB)),
        "mounts": sorted(Path("/proc/self/mounts").read_text().splitlines()),
        "processes": _processes(),
        "control groups": sorted(
            str(path)
            for top in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir())
            for path in top.glob(LAB)
        ),
        "kernel settings": [
            f"{name} {Path('/proc/sys', name).read_text().strip()}" for name in SETTINGS
        ],
        "forwarding": [Path("/proc/sys/net/ipv4/ip_forward").read_text().strip()],
        "traces of nspawn": [
            *_names(Path("/run/systemd/nspawn/propagate")),
            *_names(Path("/run/systemd/machines")),
        ],
    }


def _lines(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.splitlines()


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _processes() -> list[str]:
    found = []
    for path in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended
            words = (path / "cmdline").read_text(errors="replace").split("\0")
            if path.name.isdigit() and Path(words[0]).name in PROGRAMS:
                found.append(f"{path.name} {' '.join(words)}")
    return sorted(found)
