"""The training loop under a supervisor that forms groups in place: it outlives its group.

Work that a lost rank interrupts is undone, and done again by the next group. That takes ranks that
hold the whole model: parts of one, as of `parallel: fsdp` and `pipeline`, are launched again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from hearth.data.stream import StreamedRows
from hearth.node.probe import Measured
from hearth.ranks.control_protocol import Form, Formed, Leave, Waiting
from hearth.ranks.world import GroupBroken, agree, leave
from hearth.trainer.checkpointing import BEST, newest_checkpoint
from hearth.trainer.loop import RECORDING, Trainer
from hearth.trainer.progress import Progress, Standing, furthest
from hearth.trainer.replicas import sync_weights
from hearth.trainer.training_state import hand_over


@dataclass(frozen=True)
class Parting:
    """Cause and time of a rank leaving its group.

    Attributes:
        why: "new" (it was in none), "paused" or "broken".
        message: for "broken" why, by the supervisor or by the error that the rank saw.
        generation: of the group.
        nodes: of the group.
        at: when, in seconds of `time.monotonic`; if it waited for others by then, since when.
        reasons: why nodes are not in the next group, by node.
    """

    why: str
    message: str
    generation: int
    nodes: tuple[str, ...]
    at: float
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def waited(self) -> float:
        """Seconds since then."""
        return round(time.monotonic() - self.at, 3)

    def left(self, nodes: tuple[str, ...]) -> dict[str, str]:
        """Return which nodes of the group are not in the next one of `nodes`, and why."""
        why = self.message or "it left in order"
        gone = (node for node in self.nodes if node not in nodes)
        return {node: self.reasons.get(node, why) for node in gone}

    def joined(self, nodes: tuple[str, ...]) -> list[str]:
        """Return which of the next group's `nodes` were not in this one."""
        return [node for node in nodes if node not in self.nodes]


class InPlaceTrainer:
    """Takes a rank's `trainer` from one group to the next.

    `measured` is the rank's speed, for the plans of each new group.
    """

    def __init__(self, trainer: Trainer, measured: Measured) -> None:
        self._trainer, self._measured = trainer, measured
        self._world, self._work = trainer.world, trainer.work
        assert trainer.world.control is not None
        self._control = trainer.world.control

    def train(self) -> str:
        """Train in one group after the other; return `finished` or `stopped`.

        Raises `HearthError` if the run cannot continue, or ends without a single optimizer step.
        """
        with self._trainer.recording():
            return self._train()

    def _train(self) -> str:
        """Train until the run ends, or until the supervisor orders this rank to leave."""
        trainer, parting = self._trainer, None
        if trainer.progress.launch:
            trainer.open_record()
            self._control.tell(self._formed())
        else:
            parting = self._parting("new")
        while True:
            if parting and (order := self._next_group(parting)):
                return self._leave(order)
            try:
                outcome = trainer.go_on()
            except GroupBroken as broken:
                # Silence of a node that is lost counts, too: this rank may have waited for it.
                parting = self._parting("broken", str(broken), self._work.idle_since)
                trainer.stepper.abandon()
                continue
            if outcome:
                return outcome
            self._work.wait()
            leave(self._world)
            parting = self._parting("paused")

    def _next_group(self, parting: Parting) -> Leave | None:
        """Leave the group, and form groups as the supervisor orders until one has settled.

        Returns the order to leave instead, if that comes.
        """
        why, message = parting.why, parting.message
        while True:
            self._world.drop()
            self._work.abandon()
            generation, step = self._world.generation, self._trainer.step
            waiting = Waiting(why, generation, step, loaded=True, message=message)
            order = self._control.wait(waiting)
            if isinstance(order, Leave):
                return order
            if not isinstance(order, Form):
                continue  # an order to load, which this rank has done
            if parting.why == "broken":  # the supervisor knows more than that a connection broke
                known = self._control.reasons.get(parting.generation) or parting.message
                parting = replace(parting, message=known)
            parting = replace(parting, reasons=order.left)
            try:
                self._world.form(order)
                self._settle(parting)
            except GroupBroken as broken:
                why, message = "broken", str(broken)
                continue
            self._control.tell(self._formed())
            return None

    def _parting(self, why: str, message: str = "", at: float | None = None) -> Parting:
        """Return the parting of this rank from its group, now or at the time `at`."""
        generation, nodes = self._world.generation, self._trainer.progress.nodes
        return Parting(why, message, generation, nodes, time.monotonic() if at is None else at)

    def _leave(self, order: Leave) -> str:
        """End by itself, as ordered; return `finished` if nothing is left to do, or `stopped`."""
        trainer, progress = self._trainer, self._trainer.progress
        outcome = "finished" if progress.launch and progress.ended else "stopped"
        if progress.launch and (progress.ended or order.save):
            trainer.checkpoint_at_end()
            trainer.conclude(outcome)
        return outcome

    def _settle(self, parting: Parting) -> None:
        """Bring the members of a new group to the state of the one that is furthest.

        Raises `GroupBroken` if a rank is lost or has other data, model or software; this rank's
        state is then its old one, or the other's. Raises `HearthError` if this rank is the one.
        """
        trainer, world, progress = self._trainer, self._world, self._trainer.progress
        self._work.wait()
        disk = trainer.context.disk
        disk.spares = len(world.nodes) > 1
        own = Standing(
            world.rank,
            world.keeps,
            progress.launch,
            progress.generation,
            progress.step,
            progress.done,
            None if disk.fails(BEST) else trainer.evaluator.best,
        )
        everyone = [Standing(**each) for each in world.gather(asdict(own))]
        source = furthest(everyone)
        agree(world, trainer.facts.identity, source.rank if source else None)
        if source is None:
            self._begin_together()
        elif any(each.reached() != source.reached() for each in everyone):
            self._take_over(own, source, everyone)
        first = source.rank if source else world.leader
        trainer.stepper.regroup(self._measured, first)
        nodes = world.nodes
        change = {
            "left": parting.left(nodes),
            "joined": parting.joined(nodes),
            "waited": parting.waited,
        }
        change = world.from_rank(first, change)
        # From here on by itself.
        self._work.begin("record of the new group", RECORDING)
        progress = trainer.progress
        trainer.telemetry.lead(world.leads, progress.step)
        if source:
            trainer.reports.team(progress.step, world.generation, nodes, **change)
            progress.done += 1
        progress.nodes, progress.generation = nodes, world.generation

    def _take_over(self, own: Standing, source: Standing, everyone: list[Standing]) -> None:
        """Send the state, the record and the best weights of `source` to ranks without them."""
        trainer, evaluator = self._trainer, self._trainer.evaluator
        gives, state, text = own.rank == source.rank, None, b""
        if gives:
            state = {
                "training": trainer.learning.state.get(),
                "progress": trainer.progress.state(),
                "best": evaluator.best,
                "since_best": evaluator.since_best,
                "stream": trainer.stream_position(),
                "newest_step": trainer.checkpointer.newest_step,
            }
            text = trainer.telemetry.text().encode()
        lacks = own.reached() != source.reached()
        state = hand_over(self._world, source.rank, state, lacks)
        text = self._world.bytes_from(source.rank, text)
        if source.best is not None and any(each.best != source.best for each in everyone):
            trainer.checkpointer.share_best(source.rank, lacks=own.best != source.best)
        if not lacks:
            return
        # From here on by itself.
        self._work.begin("state of the run", RECORDING)
        trainer.kept = None  # a checkpoint of the same step may be of a step that was taken again
        trainer.learning.state.set(state["training"])
        trainer.progress = Progress.from_state(state["progress"])
        trainer.progress.checkpoint_due |= state["newest_step"] == trainer.progress.step
        evaluator.best, evaluator.since_best = state["best"], state["since_best"]
        if isinstance(trainer.facts.rows, StreamedRows):
            trainer.facts.rows.go_to(state["stream"])
        trainer.telemetry.take_over(text.decode())
        self._work.wait()

    def _begin_together(self) -> None:
        """Begin at the newest checkpoint, in a group whose ranks have not trained yet."""
        launch = self._world.from_leader(secrets.token_hex(8))
        trainer = self._trainer
        found = newest_checkpoint(trainer.context, trainer.facts.inputs)
        sync_weights(trainer.learning.parameters, self._world)
        trainer.begin(launch, found)
        trainer.open_record()

    def _formed(self) -> Formed:
        """Return the message that this rank trains in a group."""
        choices = asdict(self._trainer.facts.choices)
        return Formed(self._world.generation, self._trainer.step, choices)
