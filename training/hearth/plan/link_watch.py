"""Finds the links that became slow, from what the ranks measure of each exchange. Pure.

A ring is as fast as its slowest hop, and the bytes of each hop, over the seconds that its link took
for them, tell which one that is (`hearth.ranks.hop`): waiting for a neighbour is none of them.
Where the carrier shows no hops (NCCL, gloo), the exchange is judged as a whole.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hearth.plan.prediction import ADVISED, EXCHANGED
from hearth.plan.slow_links import SLOW_MBIT, LinkAdvice, SlowLinks

Pair = tuple[str, str]
"""Sender and receiver of a hop."""

WHOLE: Pair = ("", "")
"""The exchange as a whole, where the carrier shows no hops."""

_MATTERS = 1 / 3
"""Least part of a step for an exchange that is worth a message."""

_FELL, _WHOLE_FELL = 0.5, 0.25
"""Part of its first speed below which a link became slow, and all links together: those seem slower
too when the ranks' processors are busy."""

_FAST = 1000.0
"""Least Mbit/s of a link that is never slow, whatever it carried before."""

_MATTERS_FROM_START = 0.5
"""The same part for a link below SLOW_MBIT that may never have been faster."""

_SHORTEST = 0.05
"""Seconds of an exchange that is worth a message; in shorter ones the ranks' own work shows."""

_BY_LINK = 0.5
"""Part of the exchange that a link must be busy, to be the reason why it is long."""

_ALIKE = 2.0
"""Links are named with the slowest one up to this multiple of its speed."""

_IN_A_ROW = 2
"""Steps after which a link is named, or no longer named."""

_FIRST, _LEAST = 5, 3
"""Steps whose median is the first speed of a link, and the fewest that are one."""


@dataclass(frozen=True)
class Exchanged:
    """One step, or one round of local steps, as all ranks know it.

    Attributes:
        seconds: of the step.
        exchange: of the exchange before it, on the rank that had to wait least for others.
        nodes: of each rank that took part.
        tokens, compute_seconds: of each of these ranks.
        carried: bytes that each link carries in an exchange.
        hops: Mbit/s by hop in the exchange before it, where they were seen.
        sync_every: steps from one exchange to the next.
        may_wait: whether that number may be raised.
    """

    seconds: float
    exchange: float
    nodes: tuple[str, ...]
    tokens: tuple[float, ...]
    compute_seconds: tuple[float, ...]
    carried: float
    hops: Mapping[Pair, float]
    sync_every: int = 1
    may_wait: bool = True


@dataclass
class LinkWatch:
    """Follows the links of a run, step by step.

    Attributes:
        first: by hop, the first speeds that were seen.
        exchanges: by hop, the seconds of their exchanges.
        lately: by hop that is slow now, its last speeds.
        before, computed: seconds of the newest step and of its slowest rank's computing; its
            exchange is reported in the next one.
        slow, well: steps in a row, with and without a slow link.
        named: the slow links now.
    """

    first: dict[Pair, list[float]] = field(default_factory=dict)
    exchanges: dict[Pair, list[float]] = field(default_factory=dict)
    lately: dict[Pair, list[float]] = field(default_factory=dict)
    before: float = 0.0
    computed: float = 0.0
    slow: int = 0
    well: int = 0
    named: SlowLinks | None = None

    def state(self) -> dict[str, Any]:
        """Return this as JSON, for a rank that goes on from here."""
        counts = {each: getattr(self, each) for each in _COUNTS}
        by_pair = {
            each: [[*pair, *kept] for pair, kept in getattr(self, each).items()]
            for each in _BY_PAIR
        }
        return {**counts, **by_pair, "named": self.named and self.named.record}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LinkWatch:
        """Return the watch with this `state`."""
        kept = {
            each: {(sender, receiver): values for sender, receiver, *values in state[each]}
            for each in _BY_PAIR
        }
        named = SlowLinks.from_record(state["named"])
        return cls(**kept, **{each: state[each] for each in _COUNTS}, named=named)

    def observe(self, step: Exchanged) -> SlowLinks | None:
        """Add a step; return the links that are slow now."""
        seconds, self.before = self.before, step.seconds
        computed, self.computed = self.computed, max(step.compute_seconds)
        hops = {
            pair: mbit
            for pair, mbit in step.hops.items()
            if mbit > 0 and (pair == WHOLE or pair[0] != pair[1])
        }
        part = min(1.0, step.exchange / seconds) if seconds > 0 and len({*step.nodes}) > 1 else 0.0
        if part >= _MATTERS and not hops:
            return self.named  # the link may still be slow
        # A rank that begins last may end first: its own exchange is a little shorter than all.
        longest = min(seconds, max(step.exchange, seconds - computed))
        found = self._judge(replace(step, exchange=longest), hops, part)
        self.lately = self.lately if found else {}
        self.slow, self.well = (self.slow + 1, 0) if found else (0, self.well + 1)
        if found and (self.named or self.slow >= _IN_A_ROW):
            self.named = found
        elif not found and self.well >= _IN_A_ROW:
            self.named = None
        return self.named

    def _judge(self, step: Exchanged, hops: Mapping[Pair, float], part: float) -> SlowLinks | None:
        """Return the links that are slow in this step alone."""
        slow = {}
        for pair, mbit in hops.items():
            began = self._began(pair)
            limit = min(_FAST, (began or 0.0) * (_WHOLE_FELL if pair == WHOLE else _FELL))
            fell = mbit <= limit and part >= _MATTERS
            always = part >= _MATTERS_FROM_START and mbit < SLOW_MBIT
            busy = step.carried * 8e-6 / mbit >= step.exchange * _BY_LINK
            if (fell or always) and busy and step.exchange >= _SHORTEST:
                kept = [*self.lately.get(pair, []), mbit][-_LEAST:]
                self.lately[pair], slow[pair] = kept, _median(kept) or mbit
            elif len(kept := self.first.setdefault(pair, [])) < _FIRST:
                kept.append(mbit)
                self.exchanges.setdefault(pair, []).append(step.exchange)
        if not slow:
            return None
        least = min(slow, key=slow.__getitem__)
        named = [pair for pair in slow if slow[pair] <= slow[least] * _ALIKE]
        pairs = tuple(pair for pair in named if pair != WHOLE)
        advice = _advice(step, hops, named, self._mended(named))
        part = step.exchange / (step.exchange + max(step.compute_seconds))
        first = [began for pair in named if (began := self._began(pair))]
        return SlowLinks(part, pairs, slow[least], min(first, default=None), advice)

    def _began(self, pair: Pair) -> float | None:
        """Return the first speed of a hop in Mbit/s, None if it is not known."""
        return _median(self.first.get(pair, []))

    def _mended(self, pairs: Sequence[Pair]) -> float | None:
        """Return the seconds of an exchange if these links were as fast as at first."""
        known = [_median(self.exchanges.get(pair, [])) for pair in pairs]
        return None if None in known else max(each for each in known if each is not None)


_BY_PAIR = ("first", "exchanges", "lately")
_COUNTS = ("before", "computed", "slow", "well")


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if len(values) >= _LEAST else None


def _advice(
    step: Exchanged, hops: Mapping[Pair, float], slow: Sequence[Pair], mended: float | None
) -> tuple[LinkAdvice, ...]:
    """Return the ways out of these slow links, the fastest first."""
    compute, tokens = max(step.compute_seconds), sum(step.tokens)
    found = [LinkAdvice("a cable that carries what it did", _speed(tokens, compute, mended))]
    if step.may_wait:
        every = max(ADVISED, 4 * step.sync_every)
        tensors = EXCHANGED if step.sync_every == 1 else 1
        less = step.exchange * tensors * step.sync_every / every
        found.append(LinkAdvice(f"sync_every={every}", _speed(tokens, compute, less)))
    if node := _one_to_leave(step, slow):
        found.append(LinkAdvice(f"without {node}", _speed_without(node, step, hops, mended)))
    return tuple(sorted(found, key=lambda each: -(each.tokens_per_second or 0)))


def _speed(tokens: float, compute: float, exchange: float | None) -> float | None:
    """Return tokens a second of a step with this exchange; None if that is not known."""
    known = exchange is not None and compute + exchange > 0
    return round(tokens / (compute + exchange), 1) if known else None


def _one_to_leave(step: Exchanged, slow: Sequence[Pair]) -> str:
    """Return the node that most of the slow links touch, the slowest of several; '' without."""
    touched = [node for pair in slow for node in pair if node]
    speeds = _speeds(step)
    return max(
        dict.fromkeys(touched),
        key=lambda node: (touched.count(node), -speeds.get(node, 0.0)),
        default="",
    )


def _speeds(step: Exchanged) -> dict[str, float]:
    """Return the tokens a second that each node computes, while it computes."""
    speeds: dict[str, float] = {}
    ranks = zip(step.nodes, step.tokens, step.compute_seconds, strict=True)
    for node, tokens, seconds in ranks:
        speeds[node] = speeds.get(node, 0.0) + (tokens / seconds if seconds > 0 else 0.0)
    return speeds


def _speed_without(
    node: str, step: Exchanged, hops: Mapping[Pair, float], mended: float | None
) -> float | None:
    """Return tokens a second without a node: the others compute its rows too."""
    rest = sum(speed for name, speed in _speeds(step).items() if name != node)
    ranks = [name for name in step.nodes if name != node]
    if not rest:
        return None
    share = ring_share(len(ranks)) / ring_share(len(step.nodes))
    links = [mbit for pair, mbit in hops.items() if node not in pair]
    if len({*ranks}) == 1:
        exchange: float | None = 0.0
    elif links:
        exchange = step.carried * share * 8e-6 / min(links)
    else:
        exchange = None if mended is None else mended * share
    return _speed(sum(step.tokens), sum(step.tokens) / rest, exchange)


def ring_share(ranks: int) -> float:
    """Return the part of the gradients, in both directions, that each link of a ring carries."""
    return 2 * (ranks - 1) / ranks
