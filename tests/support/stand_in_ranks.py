"""A stand-in of a rank in place: no torch, so that it starts fast. Run it as a script.

It takes orders from its supervisor as Hearth's ranks do, and takes its steps together with the
others over sockets to the first rank: whoever loses one, or is interrupted, leaves the group.

STEPS is the number of steps, PACE the seconds of each, LOADING those of loading alone, and ALLOWED
those that a step may take. Files in the results folder make it finish (`enough`), raise (`raise`;
the error in it once), hang (`hang`) and evaluate (`evaluate`). Its checkpoint is a folder where
those of a run are, so that supervisors bring it to each other; the number of the step is all that
it holds.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from hearth.base.packet_filter import listening
from hearth.ranks.control_protocol import (
    EVALUATION,
    LAYOUT,
    RANK_AGAIN,
    Alive,
    Doing,
    Formed,
    Here,
    Interrupt,
    Leave,
    LoadAlone,
    Pause,
    RankEnded,
    Waiting,
    connect_to_supervisor,
    decode,
    encode,
    node_of_each_rank,
    parse_layout,
)

layout = parse_layout(os.environ[LAYOUT])
node, local = os.environ["HEARTH_NODE"], int(os.environ["LOCAL_RANK"])


def ranks_of(*nodes):
    return tuple(rank for rank, name in enumerate(node_of_each_rank(layout)) if name in nodes)


own = ranks_of(node)[local]
checkpoints = Path(os.environ["HEARTH_WORKSPACE"], "checkpoints", Path.cwd().name)
step = max((int(path.name[5:]) for path in checkpoints.glob("step-*")), default=0)
last = int(os.environ.get("STEPS", 100000))
pace = float(os.environ.get("PACE", 0.05))


class Broken(Exception):
    pass


class Control:
    def __init__(self):
        self.connection = connect_to_supervisor(Path.cwd())
        self.orders, self.over, self.pause, self.sockets = queue.Queue(), 0, 0, []
        threading.Thread(target=self.read, daemon=True).start()

    def tell(self, message):
        self.connection.sendall(encode(message))

    def read(self):
        for line in self.connection.makefile("rb"):
            order = decode(line)
            if isinstance(order, Pause):
                self.pause = order.generation
            elif isinstance(order, Interrupt):
                self.over = max(self.over, order.generation)
                for each in self.sockets:
                    with suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
            else:
                self.orders.put(order)
        os._exit(143)


def connected(order, members):
    # Return the sockets to the other members: the first has one to each, the others one to it.
    if own != members[0]:
        end = time.monotonic() + 10
        while order.generation > control.over and time.monotonic() < end:
            try:
                found = socket.create_connection((order.address, order.port), 5)
                found.settimeout(None)
                return [found]
            except OSError:
                time.sleep(0.02)
        raise Broken("no rank opened the store")
    with listening(order.address, order.port, order.clients) as listener:
        listener.settimeout(0.1)
        found, end = [], time.monotonic() + 10
        while len(found) < len(members) - 1:
            if order.generation <= control.over or time.monotonic() > end:
                raise Broken("a rank did not come")
            with suppress(TimeoutError):
                found.append(listener.accept()[0])
        for each in found:
            each.settimeout(None)
        return found


class Group:
    def __init__(self, order):
        self.generation, self.members = order.generation, ranks_of(*order.nodes)
        control.sockets = connected(order, self.members)
        self.files = [each.makefile("rwb") for each in control.sockets]
        if order.generation <= control.over:
            self.close()
            raise Broken("interrupted while forming")

    def close(self):
        sockets, control.sockets = control.sockets, []
        for each in [*self.files, *sockets]:
            with suppress(OSError):
                each.close()

    def exchange(self, value):
        # Return everybody's values, the same list on all members.
        try:
            if own != self.members[0]:
                return self.send(self.files[0], value)
            values = [value, *(json.loads(file.readline()) for file in self.files)]
            for file in self.files:
                self.write(file, values)
            return values
        except (OSError, ValueError) as error:
            raise Broken(f"Connection closed by peer: {error}") from error

    def send(self, file, value):
        self.write(file, value)
        return json.loads(file.readline())

    def write(self, file, value):
        file.write(json.dumps(value).encode() + b"\n")
        file.flush()


def wait(why, generation=0, loaded=True, message=""):
    control.tell(Waiting(why, generation, step, loaded, message))
    return control.orders.get()


def train(group):
    # Take steps together until the end, or until a pause; return why.
    global step
    while True:
        control.tell(Doing("micro-batch", step, 0, float(os.environ.get("ALLOWED", 60))))
        control.tell(Alive())
        if Path("raise").exists():
            if error := Path("raise").read_text():
                Path("raise").unlink()
                raise RuntimeError(error)
            raise ValueError("the loss is not finite")
        while Path("hang").exists():
            time.sleep(0.1)
        while Path("evaluate").exists() and order.generation > control.over:
            control.tell(Doing(EVALUATION[0], step, 0, 60))
            time.sleep(0.1)
        flags = {
            "stop": Path("stop").exists(),
            "enough": step >= last or Path("enough").exists(),
            "pause": control.pause == group.generation,
        }
        waits.set()
        control.tell(Doing("waiting for the others", step, 0, 20))
        told = group.exchange(flags)
        waits.clear()
        if any(each["enough"] for each in told):
            return "finished"
        if any(each["stop"] for each in told):
            return "stopped"
        step += 1
        where = f"generation {group.generation} rank {own} of {len(group.members)}"
        print(f"{where} step {step}\n", end="", flush=True)  # one write: others share the log
        if any(each["pause"] for each in told):
            return "paused"
        time.sleep(pace)


def beat():
    # A rank that is stopped tells no more that it waits.
    while waits.wait():
        time.sleep(5)
        if waits.is_set():
            control.tell(Doing("waiting for the others", step, 0, 20))


control, waits = Control(), threading.Event()
threading.Thread(target=beat, daemon=True).start()
control.tell(Here(local, os.getpid()))
order, group = wait("new", loaded=False), None
loaded = False
while True:
    if isinstance(order, Leave):
        if order.save:
            print(f"saved step {step}", flush=True)
            folder = checkpoints / f"step-{step}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "adapter").write_text(str(step))
        control.tell(RankEnded("stopped", step))
        break
    if isinstance(order, LoadAlone):
        time.sleep(float(os.environ.get("LOADING", 0)))
        loaded = True
        order = wait("new")
        continue
    group = None
    try:
        group = Group(order)
        step = max(group.exchange(step))
        loaded = True
        control.tell(Formed(order.generation, step, {"precision": "float32"}))
        outcome = train(group)
    except Broken as error:
        waits.clear()
        if group:
            group.close()
        if not loaded:
            sys.exit(RANK_AGAIN)
        order = wait("broken", order.generation, message=str(error))
        continue
    group.close()
    if outcome != "paused":
        control.tell(RankEnded(outcome, step))
        break
    order = wait("paused", order.generation)
