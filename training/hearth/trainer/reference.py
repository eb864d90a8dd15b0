"""The reference of preferences: each answer's log-probability before the first step.

All ranks compute them once, each a part by its speed, with the model as it is then: fresh, or with
the adapter that the run starts from, and dropout off. So no second model takes memory, and no step
computes one. The table is part of the state of training: a checkpoint holds it, and a rank that
joins later gets it. Another run of the same data, model and adapter reads it beside the tokens.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from hearth.base.errors import HearthError
from hearth.base.files import write_whole
from hearth.data.load import TokenData
from hearth.data.rows import Rows
from hearth.plan.planner import Planner
from hearth.ranks.world import World
from hearth.trainer.compute import Computing
from hearth.trainer.training_state import hand_over
from hearth.trainer.work import Work


class Reference:
    """Log-probabilities of the answers of a run's rows, float64 by number of the piece.

    With `mismatched` also those of the answers that KTO puts in their place.
    """

    def __init__(self, data: TokenData, mismatched: bool) -> None:
        self._sides = {"train": data.train, "held_out": data.held_out}
        self._kinds = (False, True) if mismatched else (False,)
        self._tables = {
            _name(side, kind): torch.zeros(len(rows.liked), dtype=torch.float64)
            for side, rows in self._sides.items()
            for kind in self._kinds
        }

    def of(self, rows: Rows, mismatched: bool = False) -> torch.Tensor:
        """Return the table of the training rows or of the held-out rows, (pieces,)."""
        side = next(name for name, own in self._sides.items() if own is rows)
        return self._tables[_name(side, mismatched)]

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the tables by name."""
        return dict(self._tables)

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take over the tables of a checkpoint, or of another rank."""
        for name, table in self._tables.items():
            table.copy_(state[name])

    def fill(
        self,
        compute: Computing,
        planner: Planner,
        world: World,
        work: Work,
        cache: Path,
        identity: Mapping[str, str],
    ) -> None:
        """Compute the tables, or read them in the folder `cache`; all ranks take part.

        `identity` is that of data, model, adapter and arithmetic.

        Raises `HearthError` if a row does not fit into memory or a log-probability is not finite,
        `GroupBroken` if a rank is lost.
        """
        key = hashlib.sha256(json.dumps(dict(identity), sort_keys=True).encode()).hexdigest()[:32]
        file = cache / f"reference-{key}.json"
        if self._take(_read(file), world):
            return
        began = time.monotonic()
        if world.leads:
            count = sum(map(len, self._tables.values()))
            print(f"reference: computing {count} log-probabilities of answers, once", flush=True)
        for side, rows in self._sides.items():
            for kind in self._kinds if len(rows) else ():
                self._compute(_name(side, kind), rows, kind, compute, planner, world)
        work.wait()
        lists = {name: table.tolist() for name, table in self._tables.items()}
        if world.keeps:
            with suppress(OSError):  # a full disk costs the next run this computation, no more
                cache.mkdir(parents=True, exist_ok=True)
                write_whole(file, json.dumps(lists))
        if world.leads:
            print(f"reference: computed in {time.monotonic() - began:.1f} s", flush=True)

    def _take(self, own: dict[str, torch.Tensor] | None, world: World) -> bool:
        """Take over the first tables that a member has, its `own`; return whether one does."""
        fits = own is not None and {name: len(each) for name, each in own.items()} == {
            name: len(table) for name, table in self._tables.items()
        }
        having = [rank for rank, has in zip(world.members, world.gather(fits), strict=True) if has]
        if having:
            self.load_state_dict(hand_over(world, having[0], own))
        return bool(having)

    def _compute(
        self,
        name: str,
        rows: Rows,
        mismatched: bool,
        compute: Computing,
        planner: Planner,
        world: World,
    ) -> None:
        """Compute one table, each rank a part of the rows."""
        plan, rank = planner.share(len(rows)), world.rank
        own = np.arange(len(rows))[plan.slice_of(rank)]
        found = compute.log_probs(rows, own, plan.micro_batch[rank], world.say, mismatched)
        everyone = world.gather([rows.pieces_of(own).tolist(), found.tolist()])
        for pieces, values in everyone:
            self._tables[name][torch.tensor(pieces, dtype=torch.int64)] = torch.tensor(
                values, dtype=torch.float64
            )
        if not self._tables[name].isfinite().all():
            raise HearthError(
                "reference: the model gives some answers no finite log-probability before the "
                "first step; take precision=fp32, or another model"
            )


def _name(side: str, mismatched: bool) -> str:
    return f"{side}, mismatched" if mismatched else side


def _read(file: Path) -> dict[str, torch.Tensor] | None:
    """Return the tables in a file of the cache; None if there is none, or it is damaged."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {name: torch.tensor(each, dtype=torch.float64) for name, each in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None
