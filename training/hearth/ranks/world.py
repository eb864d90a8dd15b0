"""The ranks of a run and their communication.

Each rank has a number in the run that never changes, the stable rank. A group is those of them
that communicate now, the members. By hand, and where a lost node ends all ranks, the group is
joined once and has every rank; under a supervisor that forms groups in place, a `World` lives
through many.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hearth.base.errors import HearthError
from hearth.ranks.alarm import Alarm, GroupBroken, from_bytes, to_bytes
from hearth.ranks.control import Control, SupervisorWatch, connect
from hearth.ranks.control_protocol import Form, Interrupt, Leave, LoadAlone, Waiting
from hearth.ranks.group import WholeGroup, connected, have_own_gpus, nccl_in_place
from hearth.ranks.hop import Hop
from hearth.ranks.memory import is_out_of_memory, limit_gpu_memory
from hearth.ranks.rendezvous import meet
from hearth.ranks.ring import Ring

# Default timeouts of the process groups. Supervisors detect a lost peer by a heartbeat, so theirs
# need only exceed the longest wait for a healthy one: with `sync_every` a round of a slow rank.
_BY_HAND, _SUPERVISED = timedelta(minutes=30), timedelta(days=1)

_CPU = torch.device("cpu")


class World:
    """This rank, and the group of ranks that it communicates with.

    Attributes:
        rank: the stable rank.
        size: number of ranks in the whole run.
        local_rank: number of this rank on its node.
        node: name of this rank's node.
        device: that this rank computes on.
        layout: the node of every stable rank.
        members: stable ranks of the group, ascending; this rank alone if it is in none.
        generation: number of the launch, or of the newest group formed in place; 0 by hand.
        control: the connection to a supervisor that forms groups in place.
        supervisor: that, or the connection to one that only watches.
        gradients: the NCCL group of the gradients; None if they travel as values do.
        keeps: whether this rank writes the files that every node keeps, as the first rank of its
            node; of nodes that share the folder only the first writes (`record.folders`).
        hop: from the member before in this group's newest sum; not seen with NCCL and gloo.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        local_rank: int = 0,
        node: str = "",
        device: torch.device = _CPU,
        generation: int = 0,
        timeout: timedelta = _BY_HAND,
        control: Control | None = None,
        watch: SupervisorWatch | None = None,
    ) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self.node, self.device, self.generation = node, device, generation
        self.control, self.supervisor = control, control or watch
        self.layout: tuple[str, ...] = control.nodes if control else (node,) * size
        self.members: tuple[int, ...] = (rank,)
        self.gradients: Any = None
        self.keeps = local_rank == 0
        self.hop = Hop()
        self._timeout = timeout
        self._group: WholeGroup | Ring | None = None
        # Of the group formed in place. The control's thread sounds what the main thread changes.
        self._alarm: Alarm | None = None
        self._changing = threading.Lock()
        if control:
            control.on_interrupt = self._on_interrupt
            atexit.register(self.drop)  # else NCCL's destructor may wait for a stopped peer

    @property
    def leader(self) -> int:
        """The member that leads: the lowest."""
        return self.members[0]

    @property
    def leads(self) -> bool:
        """Whether this is the leader, which writes the files that only one rank may write."""
        return self.rank == self.leader

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the group, in rank order."""
        return tuple(dict.fromkeys(self.layout[rank] for rank in self.members))

    @property
    def alone(self) -> bool:
        """Whether the group has no other member."""
        return len(self.members) == 1

    @property
    def gradient_device(self) -> torch.device:
        """The device of tensors that can be summed."""
        return self.device if self.alone or self.gradients else _CPU

    @property
    def carrier(self) -> str:
        """The library that carries the gradients: `nccl`, `gloo`, or `ring`, Hearth's own."""
        return "nccl" if self.gradients else "ring" if self.control else "gloo"

    @property
    def receives(self) -> tuple[str, float]:
        """The node that sends a part of a sum now, and Mbit/s; "" and 0 if none does.

        For any thread.
        """
        group, members = self._group, self.members
        mbit = group.hop.mbit if isinstance(group, Ring) and self.rank in members else None
        if mbit is None:
            return "", 0.0
        return self.layout[members[members.index(self.rank) - 1]], round(mbit, 3)

    def say(self, text: str) -> None:
        """Print a line that begins with this rank's node."""
        print(f"{self.node}: {text}", flush=True)

    # Every collective raises `GroupBroken` if the group is over, under a supervisor that forms
    # groups in place; else the error is torch's.

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON `value` of every member, in the order of `members`, on every member.

        Tuples become lists, here and in the other methods.
        """
        with self._collective() as group:
            return group.gather(value) if group else [from_bytes(to_bytes(value), "this rank")]

    def from_leader(self, value: Any) -> Any:
        """Return the leader's JSON `value` on every member."""
        return self.from_rank(self.leader, value)

    def from_rank(self, rank: int, value: Any) -> Any:
        """Return the JSON `value` of `rank`, a member, on every member."""
        own = to_bytes(value) if self.rank == rank else b""
        return from_bytes(self.bytes_from(rank, own), f"rank {rank}")

    def bytes_from(self, rank: int, content: bytes) -> bytes:
        """Return the `content` of `rank`, a member, on every member."""
        with self._collective() as group:
            return group.bytes_from(self.members.index(rank), content) if group else content

    def broadcast_(self, buffer: torch.Tensor, source: int | None = None) -> None:
        """Replace `buffer`, a contiguous tensor on the CPU, by that of `source` or the leader."""
        with self._collective() as group:
            if group:
                group.broadcast(
                    buffer, self.members.index(self.leader if source is None else source)
                )

    def sum_(self, buffer: torch.Tensor) -> None:
        """Replace `buffer`, a tensor on `gradient_device`, by its sum over all members."""
        with self._collective() as group:
            if not self.gradients:
                if group:
                    self.hop = group.sum(buffer) or Hop()
            elif self.control:
                self.gradients.allreduce([buffer]).wait()
                # An aborted kernel leaves rubbish, so wait before the check.
                torch.cuda.synchronize(buffer.device)
            else:
                dist.all_reduce(buffer, group=self.gradients)

    # From one rank to another, in a group that is joined once. A thread may wait in `receive_`
    # while another one sends.

    def send(self, buffer: torch.Tensor, target: int) -> Any:
        """Begin to send `buffer`, a contiguous tensor on the CPU; return the work to wait for."""
        assert isinstance(self._group, WholeGroup)
        return self._group.send(buffer, target)

    def receive_(self, buffer: torch.Tensor, source: int) -> None:
        """Replace `buffer`, a contiguous tensor on the CPU, by the next one that `source` sends."""
        assert isinstance(self._group, WholeGroup)
        self._group.receive(buffer, source)

    def barrier(self) -> None:
        """Wait until every member has called this."""
        with self._collective() as group:
            if group:
                group.barrier()

    def check(self) -> None:
        """Raise `GroupBroken` if the supervisor has interrupted this group."""
        if self._alarm and self.control and (why := self.control.is_over(self.generation)):
            raise GroupBroken(why)

    @contextmanager
    def _collective(self) -> Iterator[WholeGroup | Ring | None]:
        """Yield the group, None if this rank is alone, and look for an interrupt at the end."""
        self.check()
        try:
            yield self._group
        except RuntimeError as error:  # of NCCL: a peer is lost, or the group was aborted
            if not self.control or not self.gradients or is_out_of_memory(error):
                raise
            self.check()
            raise GroupBroken(str(error)) from error
        self.check()

    def join_all(self) -> None:
        """Join the group of torchrun's variables, which has all ranks of the run."""
        dist.init_process_group("gloo", timeout=self._timeout)
        self._group = WholeGroup()
        everyone = self._group.gather((self.node, _gpu(self.device)))
        if have_own_gpus([gpu for _, gpu in everyone]):
            self.gradients = dist.new_group(backend="nccl", timeout=self._timeout)
        self.layout = tuple(node for node, _ in everyone)
        self.members = tuple(range(self.size))

    def enter(self) -> dict[str, Any] | None:
        """Wait for the supervisor's orders until this rank is in a group or shall load alone.

        Returns the choices for loading alone, None if all members of the group load together.

        Raises:
            SystemExit: the supervisor wants the rank to leave (status 0), or has died.
        """
        assert self.control is not None
        waiting = Waiting("new", 0, 0, loaded=False)
        while True:
            match self.control.wait(waiting):
                case LoadAlone(choices):
                    return choices
                case Leave():
                    raise SystemExit(0)
                case Form() as order:
                    try:
                        self.form(order)
                    except GroupBroken as broken:
                        waiting = Waiting("new", order.generation, 0, False, str(broken))
                    else:
                        return None

    def form(self, order: Form) -> None:
        """Leave the group and form that of an order, which includes this rank.

        Raises `GroupBroken` if it cannot be formed, or the supervisor interrupts that.
        """
        assert self.control is not None
        self.drop()
        members = tuple(rank for rank, node in enumerate(self.layout) if node in order.nodes)
        alarm = Alarm()
        with self._changing:
            self.generation = self.control.generation = order.generation
            self._alarm = alarm
        try:
            self.check()
            if len(members) > 1:
                self._form(order, members, alarm)
            self.check()
        except BaseException:
            self.drop()
            raise
        self.members = members

    def _form(self, order: Form, members: tuple[int, ...], alarm: Alarm) -> None:
        """Form the group of these members, two or more."""
        index, size = members.index(self.rank), len(members)
        names = [f"rank {rank} ({self.layout[rank]})" for rank in members]
        patience = self._timeout.total_seconds()
        ring = Ring(meet(order, index, size, alarm), index, names, alarm, patience)
        self._group = ring
        if have_own_gpus(ring.gather(_gpu(self.device))):
            try:
                # Connect now, while all ranks are here, not in the first sum of gradients.
                connect = nccl_in_place(ring, order, index, size, self._timeout, self.device)
                self.gradients = connected(connect, alarm)
            except (OSError, RuntimeError) as error:
                raise GroupBroken(f"no NCCL group could be formed: {error}") from error

    def drop(self) -> None:
        """Leave the group at once, without waiting for its other members."""
        with self._changing:
            group, gradients, alarm = self._group, self.gradients, self._alarm
            self._group = self.gradients = self._alarm = None
            self.members = (self.rank,)
            self.hop = Hop()
            if alarm:
                alarm.close()
        if gradients and self.control:
            gradients.abort()
        if group:
            group.close()

    def _on_interrupt(self, order: Interrupt) -> None:
        """Get the main thread out of a group that is over; called by the control's thread."""
        with self._changing:
            if order.generation < self.generation:
                return  # meanwhile the main thread has begun to form a newer group
            gradients = self.gradients
            if self._alarm:
                self._alarm.sound(order.why)
        if gradients:
            gradients.abort()


def _gpu(device: torch.device) -> str:
    """Return the identifier of an NVIDIA GPU, unlike any other's; an empty string for a CPU."""
    on_gpu = device.type == "cuda"
    return str(torch.cuda.get_device_properties(device).uuid) if on_gpu else ""


def has_nvidia_gpu() -> bool:
    """Return whether torch can use an NVIDIA GPU (its ROCm builds call AMD GPUs `cuda` too)."""
    return torch.cuda.is_available() and torch.version.cuda is not None


def own_device(environment: Mapping[str, str] = os.environ) -> torch.device:
    """Return this local rank's device: its NVIDIA GPU, set as the current one, or the CPU."""
    if not has_nvidia_gpu():
        return torch.device("cpu")
    local_rank = int(environment.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    local = int(environment.get("LOCAL_WORLD_SIZE", "1"))
    sharing = max(1, len(range(device.index, local, torch.cuda.device_count())))
    limit_gpu_memory(device, sharing)
    return device


def join(
    seconds: float = 0,
    environment: Mapping[str, str] = os.environ,
    supervisor: Control | SupervisorWatch | None = None,
    wait: Callable[[], None] = lambda: None,
) -> World:
    """Join the process group of torchrun's variables; without them return a world of one rank.

    `supervisor` is the connection to this node's, if it is open already, and `wait` is called
    before the other ranks are waited for. A collective fails after `seconds`; 0 is a day under
    supervisors and half an hour by hand. Under a supervisor that forms groups in place the rank is
    alone at first, and waits for its orders.

    Raises `LaunchError` if that supervisor does not answer.
    """
    device = own_device(environment)
    supervisor = supervisor or connect(environment)
    usual = _SUPERVISED if "HEARTH_GENERATION" in environment else _BY_HAND
    world = World(
        rank=int(environment.get("RANK", "0")),
        size=int(environment.get("WORLD_SIZE", "1")),
        local_rank=int(environment.get("LOCAL_RANK", "0")),
        node=environment.get("HEARTH_NODE") or os.uname().nodename,
        device=device,
        generation=int(environment.get("HEARTH_GENERATION", "0")),
        timeout=timedelta(seconds=seconds) if seconds else usual,
        control=supervisor if isinstance(supervisor, Control) else None,
        watch=supervisor if isinstance(supervisor, SupervisorWatch) else None,
    )
    if world.size > 1 and not world.control:
        wait()
        world.join_all()
    return world


def leave(world: World) -> None:
    """Leave the group, after a barrier.

    Without the barrier, gloo aborts a rank whose peer destroys the group while it is still
    communicating (measured: 3 to 5 of 12 runs without the barrier, 0 of 24 with it). A group that
    breaks now has done its work.
    """
    if world.control:
        with suppress(GroupBroken):
            world.barrier()
        world.drop()
    elif world.size > 1:
        world.barrier()
        world.drop()


def agree(world: World, facts: Mapping[str, Any], source: int | None = None) -> None:
    """Check that each of `facts` is the same on all members that have it.

    With a `source`, whose training goes on, only who differs from it has to go.

    Raises:
        HearthError: on all members, naming the nodes that differ from the first; with a source on
            those that differ from it.
        GroupBroken: with a source, on the others.
    """
    everyone = zip(world.members, world.gather((world.node, dict(facts))), strict=True)
    # Compared with the source, if there is one, else with the first that has the fact.
    ranks = sorted(everyone, key=lambda each: each[0] != source)
    findings: dict[int, list[str]] = {}
    for name in dict.fromkeys(key for _, (_, found) in ranks for key in found):
        (first, leader, expected), *others = (
            (rank, node, found[name]) for rank, (node, found) in ranks if name in found
        )
        for rank, node, own in others:
            if own != expected:
                findings.setdefault(rank, []).append(
                    f"{name}: rank {rank} ({node}) has {own}, but rank {first} ({leader}) has "
                    f"{expected}; they must be equal on all nodes"
                )
    if findings and (source is None or world.rank in findings):
        raise HearthError(*itertools.chain(*findings.values()))
    if findings:
        raise GroupBroken("; ".join(itertools.chain(*findings.values())))
