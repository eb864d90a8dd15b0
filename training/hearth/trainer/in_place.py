"""The training loop under a supervisor that forms groups in place: it outlives its group.

Whatever a lost rank interrupts is undone, and done again by the next group. That takes ranks that
hold the whole model: parts of one, as of `parallel: fsdp` and `pipeline`, are launched again.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict

from hearth.data.stream import StreamedRows
from hearth.ranks.control_protocol import Formed, Leave
from hearth.ranks.world import GroupBroken, agree, leave
from hearth.trainer.checkpointing import BEST
from hearth.trainer.handover import hand_over
from hearth.trainer.loop import RECORDING, Trainer
from hearth.trainer.planning import regroup_planner
from hearth.trainer.progress import Progress, Standing, furthest
from hearth.trainer.regrouping import Parting, next_group, nodes_of
from hearth.trainer.replicas import sync_weights


class TrainerInPlace(Trainer):
    """A rank that trains in one group after the other."""

    def _train(self) -> str:
        """Train in one group after the other; return `finished` or `stopped`.

        Raises `HearthError` if the run ends without a single optimizer step.
        """
        parting = None
        if self.progress.launch:
            self._open_record()
            assert self.world.control is not None
            self.world.control.tell(self._formed())
        else:
            parting = self._parting("new")
        while True:
            if parting:
                step, choices = lambda: self.progress.step, asdict(self.choices)
                order = next_group(
                    self.world, parting, step, choices, self._settle, self.work.abandon
                )
                if order:
                    return self._leave(order)
            try:
                outcome = self._go_on()
            except GroupBroken as broken:
                # Silence of a node that is lost counts, too: this rank may have waited for it.
                parting = self._parting("broken", str(broken), self.work.idle_since)
                self.stepper.abandon()
                continue
            if outcome:
                return outcome
            self.work.wait()
            leave(self.world)
            parting = self._parting("paused")

    def _parting(self, why: str, message: str = "", at: float | None = None) -> Parting:
        """Return the parting of this rank from its group, now or at the time `at`."""
        generation, nodes = self.world.generation, self.progress.nodes
        return Parting(why, message, generation, nodes, time.monotonic() if at is None else at)

    def _leave(self, order: Leave) -> str:
        """End by itself, as ordered; return `finished` if nothing is left to do, or `stopped`."""
        progress = self.progress
        if progress.launch and progress.ended:
            self._checkpoint_at_end()
            return self._conclude("finished")
        if progress.launch and order.save:
            self._checkpoint_at_end()
            return self._conclude("stopped")
        return "stopped"

    def _settle(self, parting: Parting) -> None:
        """Bring the members of a new group to the state of the one that is furthest.

        Raises `GroupBroken` if a rank is lost or has other data, model or software; this rank's
        state is then what it was, or the other's. Raises `HearthError` if this rank is the one.
        """
        world, progress = self.world, self.progress
        self.work.wait()
        self.disk.spares = len(nodes_of(world)) > 1
        keeps = world.keeps
        own = Standing(
            world.rank,
            keeps,
            progress.launch,
            progress.generation,
            progress.step,
            progress.done,
            None if self.disk.fails(BEST) else self.evaluator.best,
        )
        everyone = [Standing(**each) for each in world.gather(asdict(own))]
        source = furthest(everyone)
        agree(world, self.identity, source.rank if source else None)
        if source is None:
            self._begin_together()
        elif any(each.reached() != source.reached() for each in everyone):
            self._take_over(own, source, everyone)
        first = source.rank if source else world.leader
        regroup_planner(self.planner, self.settings, self.measured, world, first)
        nodes = nodes_of(world)
        change = {
            "left": parting.left(nodes),
            "joined": parting.joined(nodes),
            "waited": parting.waited,
        }
        change = world.from_rank(first, change)
        # From here on by itself.
        self.work.begin("record of the new group", RECORDING)
        self.stepper.regroup()
        self.telemetry.lead(world.leads, self.progress.step)
        if source:
            self.reports.team(self.progress.step, world.generation, nodes, **change)
            self.progress.done += 1
        self.progress.nodes, self.progress.generation = nodes, world.generation

    def _take_over(self, own: Standing, source: Standing, everyone: list[Standing]) -> None:
        """Send the state, the record and the best weights of `source` to whoever lacks them."""
        gives, state, text = own.rank == source.rank, None, b""
        if gives:
            state = {
                "training": self.state.get(),
                "progress": self.progress.state(),
                "best": self.evaluator.best,
                "since_best": self.evaluator.since_best,
                "stream": self._stream_position(),
                "newest_step": self.checkpointer.newest_step,
            }
            text = self.telemetry.text().encode()
        lacks = own.reached() != source.reached()
        state = hand_over(self.world, source.rank, state, lacks)
        text = self.world.bytes_from(source.rank, text)
        if source.best is not None and any(each.best != source.best for each in everyone):
            self.checkpointer.share_best(source.rank, lacks=own.best != source.best)
        if not lacks:
            return
        # From here on by itself.
        self.work.begin("state of the run", RECORDING)
        self.kept = None  # a checkpoint of the same step may be of a step that was taken again
        self.state.set(state["training"])
        self.progress = Progress.from_state(state["progress"])
        self.progress.checkpoint_due |= state["newest_step"] == self.progress.step
        self.evaluator.best, self.evaluator.since_best = state["best"], state["since_best"]
        if isinstance(self.rows, StreamedRows):
            self.rows.go_to(state["stream"])
        self.telemetry.take_over(text.decode())
        self.work.wait()

    def _begin_together(self) -> None:
        """Begin at the newest checkpoint, in a group in which nobody has trained yet."""
        launch = self.world.from_leader(secrets.token_hex(8))
        found = self._newest()
        sync_weights(self.parameters, self.world)
        self._begin(launch, found)
        self._open_record()

    def _formed(self) -> Formed:
        """Return the message that this rank trains in a group."""
        return Formed(self.world.generation, self.progress.step, asdict(self.choices))
