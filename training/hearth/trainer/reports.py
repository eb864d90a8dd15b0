"""Reports of a run's steps, plans and teams: records of metrics and lines of the log."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hearth.base.errors import HearthError
from hearth.config import Settings
from hearth.model.sharded import weight_bytes
from hearth.node.prepare import versions_here
from hearth.plan.follow import AdaptivePlanner
from hearth.plan.link_watch import WHOLE, Exchanged, LinkWatch, ring_share
from hearth.plan.placement import Placement, describe_stages
from hearth.plan.planner import Planner
from hearth.plan.prediction import network_cost
from hearth.plan.row_order import StreamOrder
from hearth.plan.slow_links import SlowLinks
from hearth.plan.split import Plans
from hearth.plan.straggler import moves
from hearth.ranks.hop import Hop
from hearth.ranks.world import World
from hearth.record.events import (
    DiskEvent,
    DriftEvent,
    PlanEvent,
    SkipEvent,
    StartEvent,
    StepEvent,
    TeamEvent,
)
from hearth.trainer.components import Learning, RankContext, RunFacts
from hearth.trainer.planning import rows_over, slowness_of
from hearth.trainer.progress import LogWindow, StepResult
from hearth.trainer.replicas import Drift
from hearth.trainer.telemetry import Telemetry, step_line


def exchanged(
    world: World, settings: Settings, result: StepResult, seconds: float, given: int
) -> Exchanged:
    """Return a step of `seconds` whose exchange gets `given` bytes of each rank."""
    summed, members, layout = result.summed, world.members, world.layout
    exchange = summed.exchange_seconds(members)
    carried = given * ring_share(len(members))
    hops = {}
    for sender, rank in zip((members[-1], *members), members, strict=False):
        hop = Hop(round(summed.hop_bytes[rank]), summed.hop_seconds[rank])
        if hop.mbit:
            pair = layout[sender], layout[rank]
            hops[pair] = min(hop.mbit, hops.get(pair, hop.mbit))
    if world.carrier != "ring" and exchange > 0:
        hops = {WHOLE: carried * 8e-6 / exchange}
    return Exchanged(
        seconds,
        exchange,
        tuple(layout[rank] for rank in members),
        tuple(summed.tokens[rank] for rank in members),
        tuple(summed.compute_seconds[rank] for rank in members),
        carried,
        hops,
        settings.sync_every,
        may_wait=settings.optimizer in ("auto", "adamw") and settings.precision != "fp16",
    )


_NON_FINITE_IN_A_ROW = 3

_RECENT = 9
"""Steps whose median foresees the rest: a single slow one counts little, a change of speed in 5."""

_FALLEN = -3.0
"""Mean log-ratio of the chosen answers below which a line says that they became less likely."""


class Reports:
    """Reports of a run on itself; every rank calls the same methods, and `telemetry` writes."""

    def __init__(
        self,
        context: RankContext,
        facts: RunFacts,
        learning: Learning,
        planner: Planner,
        telemetry: Telemetry,
    ) -> None:
        self._run, self._world, self._facts = context.run, context.world, facts
        self._learning, self._planner, self._telemetry = learning, planner, telemetry
        self._recent_seconds: deque[float] = deque(maxlen=_RECENT)
        self._chosen: deque[float] = deque(maxlen=_RECENT)
        self._fell = False

    def start(self, step: int) -> None:
        """Record the start of the run after `step` steps, with its ranks, versions and facts.

        Raises `GroupBroken` if a rank is lost; nothing is recorded then.
        """
        facts, learning = self._facts, self._learning
        own = {"rank": self._world.rank, "node": self._world.node}
        own |= {"device": str(self._world.device)}
        own |= {"power": dict(facts.power)} if facts.power else {}
        ranks = self._world.gather(own)
        trained = sum(each.numel() for each in learning.parameters)
        if facts.placement:
            trained = sum(self._world.gather(trained))
        parts = self._stages(facts.placement) if facts.placement else self._shards()
        self._telemetry.record(
            StartEvent(
                run=self._run.name,
                generation=self._world.generation,
                world_size=self._world.size,
                # By rank, as all figures; `ranks` are those that the run begins with.
                layout=self._world.layout,
                ranks=ranks,
                step=step,
                steps=facts.steps,
                **self._epoch(),
                trainable_parameters=trained,
                versions=versions_here(),
                **facts.inputs,
                **asdict(facts.choices),
                gradients=self._world.carrier,
                exchange_bytes=learning.exchange.bytes + learning.learner.shared_bytes,
                **parts,
            )
        )
        where = ", ".join(f"{rank['node']} ({rank['device']})" for rank in ranks)
        settings = self._run.settings
        self._telemetry.say(
            f"run {self._run.name}: step {step} of {facts.steps}, "
            f"{'streamed' if settings.streaming else len(facts.rows)} rows, "
            f"{facts.choices.precision}, on {where}"
        )
        if self._learning.rounds:
            self._telemetry.say(
                f"sync_every={settings.sync_every}: each rank takes that many local steps "
                "between two averagings; the result is approximate"
            )
        if settings.compress != "none" and self._world.size > 1:
            self._telemetry.say(
                f"compress={settings.compress}: gradients are rounded to it for the exchange; "
                "the result is approximate"
            )

    def _epoch(self) -> dict[str, int]:
        """Return the rows and the tokens of an epoch for the record; a stream has none."""
        rows, order = self._facts.rows, self._facts.order
        if isinstance(order, StreamOrder):
            return {}
        return {"rows": len(rows), "tokens_per_epoch": int(rows.tokens[order.epoch(0)].sum())}

    def _shards(self) -> dict[str, Any]:
        """Return shard sizes in bytes for the record and announce their cost; {} without shards."""
        if self._run.settings.parallel != "fsdp":
            return {}
        weights, own = weight_bytes(self._learning.model)
        self._telemetry.say(network_cost(weights, self._world.size))
        turns = self._planner.share(self._run.settings.global_batch).turns
        self._telemetry.say(
            f"micro-batches per step: {turns}; no held-out question is answered, since every token "
            "would fetch as much"
        )
        return {"weight_bytes": weights, "weight_bytes_by_rank": self._world.gather(own)}

    def _stages(self, placement: Placement) -> dict[str, Any]:
        """Return the stages for the record and announce them."""
        stages, nodes = placement.stages, self._world.layout
        plan = self._planner.share(self._run.settings.global_batch)
        pieces = plan.pieces(stages[0].rank)
        self._telemetry.say(describe_stages(placement, nodes, pieces))
        return {
            "stages": [
                {"rank": each.rank, "layers": [each.layers.start, each.layers.stop]}
                for each in stages
            ]
        }

    def plans(self, step: int, before: Plans, plans: Plans) -> None:
        """Record each changed plan, and announce a changed split if it adapts to the machines."""
        was, now = rows_over(before), rows_over(plans)
        slowness = slowness_of(self._planner, self._world.size)
        in_round = {"rows_of_round": now} if len(plans) > 1 else {}
        # A round with a new split is recorded even if its first step has the same plan as before.
        last = before[-1] if before and not (in_round and was != now) else None
        for number, plan in enumerate(plans, step + 1):
            if plan != last:
                self._telemetry.record(
                    PlanEvent(
                        step=number,
                        rows=plan.rows,
                        micro_batch=plan.micro_batch,
                        slowness=slowness,
                        **in_round,
                    )
                )
            last = plan
        if isinstance(self._planner, AdaptivePlanner) and sum(was) == sum(now) and was != now:
            what = "the split of a round" if in_round else "the split"
            self._telemetry.say(f"{what} {moves(was, now, slowness, self._world.layout)}")

    def non_finite(self, step: int, result: StepResult, failures: int) -> None:
        """Report the rows, of all ranks, that gave a non-finite gradient up to `step`.

        Raises `HearthError` on all ranks after too many failures in a row.
        """
        unit = "round" if self._learning.rounds else "step"
        named = result.bad
        rows = f"row{'s' * (len(named) > 1)} {', '.join(named)}" if named else "no row by itself"
        self._telemetry.record(SkipEvent(step=step, rows=named))
        skipped = f"step {step} skipped"
        if self._learning.rounds:
            steps = f"{result.skipped} local step{'s' * (result.skipped > 1)}"
            skipped = f"{steps} skipped in the {len(result.plans)} before step {step + 1}"
        self._telemetry.say(f"{skipped}: non-finite gradient in {rows}")
        if failures == _NON_FINITE_IN_A_ROW:
            last = f"up to step {step}" if self._learning.rounds else f"step {step}"
            raise HearthError(
                f"the gradient was not finite in {failures} {unit}s in a row, the last of them "
                f"{last} ({rows}); check these rows, or start a new run with a lower "
                "learning_rate or precision=fp32"
            )

    def links(self, watch: LinkWatch, result: StepResult, seconds: float, given: int) -> None:
        """Let `watch` find slow links in a step, or a round, that took `seconds`.

        Each rank gives `given` bytes to an exchange. Changes are announced.
        """
        before = watch.named and watch.named.hops
        slow = watch.observe(exchanged(self._world, self._run.settings, result, seconds, given))
        if slow and slow.hops != before:
            self._telemetry.say(f"{slow.text}; {slow.advised}")
        elif before is not None and not slow:
            self._telemetry.say("no link holds up the exchange any more")

    def step(
        self,
        step: int,
        window: LogWindow,
        last: StepResult,
        joules: float | None,
        slow: SlowLinks | None = None,
    ) -> None:
        """Record the steps in `window` as one line of metrics; `last` is the newest step.

        `joules` is the energy of the run so far, None if it is not measured; `slow` are the links
        that hold up the exchange.
        """
        self._recent_seconds.extend(window.seconds)
        per_step = sorted(self._recent_seconds)[len(self._recent_seconds) // 2]
        record = window.record() | {
            "step": step,
            "steps": self._facts.steps,
            "epoch": round(step / self._facts.order.steps_per_epoch, 4),
            "learning_rate": last.rate,
            "grad_norm": last.norm,
            "energy_joules": joules,
            "eta_seconds": round(per_step * (self._facts.steps - step), 1),
            "slow_links": slow and slow.record,
        }
        self._telemetry.record(StepEvent(**record))
        present, stages = self._world.nodes, bool(self._facts.placement)
        self._telemetry.say(step_line(record, self._world.layout, present, stages))
        self._chosen_answers(record)

    def _chosen_answers(self, record: Mapping[str, Any]) -> None:
        """Say once that the chosen answers become less likely together with the rejected ones.

        Losses of a margin allow that: a known failure of DPO (arXiv:2402.13228).
        """
        if "chosen_reward" not in record or not self._run.settings.compares:
            return
        beta = self._run.settings.beta
        self._chosen.append(record["chosen_reward"] / beta)
        if len(self._chosen) < _RECENT or self._fell:
            return
        ratio = sum(self._chosen) / _RECENT
        if ratio < _FALLEN and record["rejected_reward"] < record["chosen_reward"]:
            self._fell = True
            self._telemetry.say(
                f"the chosen answers become less likely, too: to {math.exp(ratio):.1g} of what the "
                "model gave them before. Take care that its answers stay good: a lower "
                "learning_rate, a higher beta, or with dpo sft_weight=0.2 (docs/preferences.md)"
            )

    def disks(self, step: int, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        """Report the nodes whose disks take no writes `now`, with the reasons, if that changed."""
        if before == now:
            return
        self._telemetry.record(DiskEvent(step=step, failing=dict(now)))
        for node, why in now.items():
            if node not in before:
                self._telemetry.say(
                    f"step {step}: {node} goes on without checkpoints ({why}); other nodes write "
                    f"them, and {node} does again once its disk has room"
                )
        for node in before.keys() - now.keys():
            self._telemetry.say(f"step {step}: {node} writes again")

    def drift(self, step: int, drift: Drift) -> None:
        """Report the ranks that took over tensors of the leader, if there are any."""
        if not drift.ranks:
            return
        layout, leader = self._world.layout, self._world.leader
        count, largest = len(drift.numbers), max(drift.ranks.values())
        nodes = list(dict.fromkeys(layout[rank] for rank in drift.ranks))
        drifted = DriftEvent(step=step, tensors=count, largest=largest, nodes=nodes)
        self._telemetry.record(drifted)
        self._telemetry.say(
            f"step {step}: {count} of {drift.all} tensors of weights and moments on "
            f"{', '.join(nodes)} had drifted from those of {layout[leader]} by up to "
            f"{largest:.1g} of their size, as unlike processors round unlike; all ranks go on with "
            f"those of {layout[leader]}"
        )

    def team(
        self,
        step: int,
        generation: int,
        nodes: Sequence[str],
        left: dict[str, str],
        joined: Sequence[str],
        waited: float,
    ) -> None:
        """Record a new group of `nodes`, which goes on after `step` steps.

        `left` has the nodes that are gone and why, `waited` are the seconds from then on.
        """
        self._telemetry.record(
            TeamEvent(
                step=step,
                generation=generation,
                nodes=nodes,
                left=left,
                joined=joined,
                waited=waited,
            )
        )
        gone = [f"without {node} ({why})" for node, why in left.items()]
        came = [f"with {', '.join(joined)}"] if joined else []
        self._telemetry.say(
            f"going on after step {step} on {', '.join(nodes)}"
            + (f", {'; '.join([*gone, *came])}" if gone or came else "")
            + f", after {waited:.1f} s"
        )
