"""Relay process, one a node for a call: it receives missing items and passes them on.

It outlasts the command that starts it, and exits once no request has come for a while. Its
progress is recorded in a file, which the controller reads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from filelock import Timeout

from hearth.base.errors import HearthError, SupplyError
from hearth.base.files import write_whole
from hearth.base.interface import Peer
from hearth.base.locks import locked
from hearth.base.places import MANIFEST, TOKENS
from hearth.config.declared import CONFIG, INDEX
from hearth.model.folder import read_manifest
from hearth.model.weight_files import ModelPart, files_for
from hearth.transfer.fetching import PATIENCE, FileClient
from hearth.transfer.holding import Holding
from hearth.transfer.pieces import PIECE, Item, Key, Table, cut
from hearth.transfer.serving import FileServer

IDLE = 600.0
"""Idle timeout in seconds, after which a relay that has everything exits.

Long enough for the nodes behind it to read what is on their disks before they ask on."""

_ROOM = 64 << 10
"""Bytes reserved on the disk of the record during a transfer."""

_EVERY = 0.5


@dataclass(frozen=True)
class RelayTask:
    """Task of a relay.

    Attributes:
        call: identifies this call among earlier ones.
        address: of this node in the cluster; it listens there at `port`.
        secret: shared by the relays of this call.
        allowed: addresses that are answered.
        givers: upstream nodes, nearest first; empty for the node that sends.
        digest: checksum of the table; "" for the node that sends, which makes it.
        targets: path of each item, existing or planned.
        keys: items to send, or items this node lacks.
        record: the progress file.
        shards: paths of the run's shards that are complete here, by name.
        layers: first decoder layer of each rank here and the one after its last, if the model is
            divided among the nodes; then only the weights of these layers are received.
        count: decoder layers of the whole model.
    """

    call: str
    address: str
    port: int
    secret: str
    allowed: tuple[str, ...]
    givers: tuple[Peer, ...]
    digest: str
    targets: Mapping[str, str]
    keys: tuple[Key, ...]
    record: str
    shards: Mapping[str, str] = field(default_factory=dict)
    layers: tuple[tuple[int, int], ...] = ()
    count: int = 0


@dataclass
class RelayProgress:
    """Progress of a relay.

    Attributes:
        call: as in the task.
        pid: its process.
        state: `taking`, `proving` (verifying received files on disk), `done` or `failed`.
        sent: bytes received over the network.
        here: bytes that were on this node already.
        size: bytes of everything.
        giver: current upstream node.
        lost: `name` of each upstream node that was given up, and `why`.
        findings: why it failed.
        began: start time in seconds since the epoch.
        ended: time when everything was in place, likewise.
    """

    call: str
    pid: int
    state: str = "taking"
    sent: int = 0
    here: int = 0
    size: int = 0
    giver: str = ""
    lost: list[dict[str, str]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.time)
    ended: float = 0.0


class Relay:
    """Executes a task; `ready` is called once, with the first report for the starting process."""

    def __init__(self, task: RelayTask, ready: Callable[[dict[str, Any]], None]) -> None:
        self._task, self._ready = task, ready
        self._record = RelayProgress(task.call, os.getpid())
        self._written = 0.0

    def run(self) -> int:
        """Receive, serve, and stay until idle; return the exit status."""
        task = self._task
        try:
            giving = FileServer(task.address, task.port, task.secret, task.allowed)
        except OSError as error:
            why = f"port {task.port} of {task.address} cannot be used ({error.strerror}): try again"
            self._ready({"findings": [why]})
            return 2
        # Reserve space: on a full disk this file is deleted, so that the record can be written.
        room = Path(f"{task.record}.room")
        try:
            room.write_bytes(os.urandom(_ROOM))
        except OSError as error:
            self._ready({"findings": [_explain(error)]})
            return 2
        giving.start()
        try:
            if task.givers:
                self._ready({"findings": []})
                self._take(giving)
            else:
                self._ready({"findings": [], "facts": self._send(giving)})
        except (HearthError, OSError) as error:
            findings = error.findings if isinstance(error, HearthError) else [_explain(error)]
            if not task.givers:
                self._ready({"findings": findings})
            self._record.findings = findings
            room.unlink(missing_ok=True)
            self._state("failed")
            return 2
        room.unlink()
        while giving.idle < IDLE:
            time.sleep(1)
        return 0

    # -- the node that sends -----------------------------------------------------------------------

    def _send(self, giving: FileServer) -> dict[str, Any]:
        """Cut all items into pieces and serve them; return checksum and sizes of the table."""
        table = made(self._task.keys, self._task.targets, self._task.shards)
        holdings = [self._holding(item, table) for item in table.items]
        for holding in holdings:
            holding.use_whole()
        giving.note_request()
        giving.show(table, holdings)
        self._state("done")
        return {"digest": table.digest, "sizes": {item.key: item.size for item in table.items}}

    # -- the nodes that get something --------------------------------------------------------------

    def _take(self, giving: FileServer) -> None:
        task, record = self._task, self._record
        self._state("taking")
        asking = FileClient(task.address, task.givers, task.secret, record.lost.append)
        record.giver = asking.giver

        def arrived(size: int) -> None:
            record.sent += size
            record.giver = asking.giver
            if time.monotonic() - self._written > _EVERY:
                self._state("taking")

        table = asking.table(task.digest)
        holdings = {item.key: self._holding(item, table) for item in table.items}
        with ExitStack() as locks:
            for key in task.keys:
                locks.enter_context(_alone(holdings[key].target))
            if task.layers and "model" in task.keys:
                self._leave_out_others(holdings["model"], asking)
            record.size = sum(holdings[key].size for key in task.keys)
            lacking = []
            for key, holding in holdings.items():
                if key not in task.keys or holding.is_whole():
                    holding.use_whole()
                    record.here += holding.size if key in task.keys else 0
                else:
                    lacking.append(holding)
            giving.show(table, holdings.values())
            for holding in lacking:
                record.here += holding.resume()
                asking.fill(holding, arrived)
            asking.close()
            self._state("proving")
            for holding in lacking:
                holding.land()
        record.ended = time.time()
        self._state("done")

    def _leave_out_others(self, holding: Holding, asking: FileClient) -> None:
        """Leave out the weights of layers that other nodes have; the model's index names them.

        A model in one file is received whole.
        """
        files = {file.name: number for number, file in enumerate(holding.item.files)}
        if INDEX not in files:
            return
        config, index = (
            json.loads(self._whole(holding, files[name], asking)) for name in (CONFIG, INDEX)
        )
        tied = config.get("tie_word_embeddings") is not False
        parts = [ModelPart(range(*layers), self._task.count, tied) for layers in self._task.layers]
        weights = index["weight_map"]
        holding.leave_out(set(weights.values()) - files_for(parts, weights))

    def _whole(self, holding: Holding, number: int, asking: FileClient) -> bytes:
        """Return the content of a small file of `holding`."""
        item = holding.item
        file = item.files[number]
        return b"".join(
            asking.piece(f"{item.key}/{number}/{piece}", digest, file.name)
            for piece, digest in enumerate(file.pieces)
        )

    def _holding(self, item: Item, table: Table) -> Holding:
        shards = {name: Path(path) for name, path in self._task.shards.items()}
        target = Path(self._task.targets[item.key])
        return Holding(item, table.piece, target, shards if item.key == "data" else {})

    def _state(self, state: str) -> None:
        """Record the progress."""
        self._record.state = state
        self._written = time.monotonic()
        write_whole(Path(self._task.record), json.dumps(asdict(self._record)))


def made(
    keys: Iterable[Key], targets: Mapping[str, str], shards: Mapping[str, str] | None = None
) -> Table:
    """Build the table of the items at these paths; `shards` are those of the data, if it has any.

    Raises `SupplyError` if a file was changed or is missing.
    """
    items = []
    for key in keys:
        target = Path(targets[key])
        if key == "data":
            paths = shards or {target.name: targets[key]}
            cuts = tuple(cut(Path(paths[name]), PIECE, name) for name in sorted(paths))
            items.append(Item(key, target.name, cuts, {}))
            continue
        manifest = read_manifest(target / MANIFEST)
        if manifest is None or manifest.absent:
            raise SupplyError(f"{target} holds no whole model that was fetched")
        files = tuple(cut(target / name, PIECE) for name in sorted(manifest.files))
        changed = [file.name for file in files if file.sha256 != manifest.files[file.name].sha256]
        if changed:
            raise SupplyError(
                f"{target}: {', '.join(changed)} changed after it was fetched; delete this folder, "
                "and the model is fetched again"
            )
        about = {name: getattr(manifest, name) for name in ("id", "origin", "revision")}
        items.append(Item(key, target.name, files, about))
    return Table(PIECE, tuple(items))


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Hold the lock that a download of the model holds, too (see `hearth.model.fetch`).

    Raises `SupplyError` if another process keeps it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    lock, waiting = target.with_name(f".{target.name}.lock"), f"another process fetches {target}"
    try:
        with locked(lock, _log, waiting, PATIENCE):
            yield
    except Timeout:
        raise SupplyError(
            f"{target} is being fetched by another process, here or on a node that shares this "
            "folder; wait for it, or end it"
        ) from None


def _log(text: str) -> None:
    """Write to the relay's log: its standard output is read no more."""
    print(text, file=sys.stderr, flush=True)


def _explain(error: OSError) -> str:
    """Return the message for a file system error."""
    return (
        f"{error.filename or 'the disk'} cannot be written ({error.strerror}); what has arrived is "
        "kept, and the same command goes on from there"
    )


def start(task: RelayTask, log: Path) -> dict[str, Any]:
    """Start a relay that outlasts this process, after ending one of an earlier call.

    Returns its findings, and on the node that sends also the facts. Later errors are written to the
    record.
    """
    end_earlier(Path(task.record))
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as log_file:
        child = subprocess.Popen(
            [sys.executable, "-m", "hearth.transfer", "relay"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log_file,
            env={name: value for name, value in os.environ.items() if name not in TOKENS},
            start_new_session=True,
            text=True,
        )
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin as given, child.stdout as answer:
        given.write(json.dumps(asdict(task)))
        given.close()
        line = answer.readline()
    if not line:
        last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        return {"findings": [f"the relay on this node ended at once ({last[0]}); {log}"]}
    answer: dict[str, Any] = {"facts": {}, "findings": []} | json.loads(line)
    return answer | {"facts": answer["facts"] | {"pid": child.pid}}


def end_earlier(record: Path) -> None:
    """End the relay of an earlier call, if it still runs; its received files are kept."""
    with suppress(OSError, ValueError, KeyError, TypeError, psutil.Error):
        process = psutil.Process(int(json.loads(record.read_text())["pid"]))
        if "hearth.transfer" in process.cmdline() and "relay" in process.cmdline():
            process.terminate()
            process.wait(10)
