"""The energy of a run and its cost: totals, and the same as text. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hearth.record.story import Story
from hearth.record.windows import totals

_JOULES_A_KWH = 3.6e6


@dataclass(frozen=True)
class Energy:
    """The energy that a run has used, as far as its nodes measure theirs.

    Attributes:
        joules: of all nodes, also in steps that were lost and taken again.
        tokens: trained on, on all nodes.
        by_node: joules of each node that measures its own.
        unmeasured: the nodes that took part and measure nothing.
        price: of a kWh; 0 if it is not known.
    """

    joules: float
    tokens: float
    by_node: Mapping[str, float]
    unmeasured: Sequence[str] = ()
    price: float = 0.0

    @property
    def kwh(self) -> float:
        """The energy in kWh."""
        return kwh_of(self.joules)

    @property
    def per_million(self) -> float | None:
        """Wh per million tokens; None if a node is not measured, or nothing was trained on."""
        if self.unmeasured:
            return None
        return watt_hours_per_million(self.joules, self.tokens)

    @property
    def cost(self) -> float | None:
        """The cost of the energy; None without a price."""
        return cost_of(self.joules, self.price)


def energy_of(story: Story, price: float = 0.0) -> Energy | None:
    """Return the energy of a run, None if no node has measured any."""
    if not story.joules:
        return None
    done = totals(story.windows)
    by_node = {node: part.joules for node, (part, _) in done.items() if part.joules is not None}
    for node, joules in story.joules_at_end.items():
        by_node[node] = by_node.get(node, 0.0) + joules
    return Energy(
        story.joules,
        sum(part.tokens for part, _ in done.values()),
        # One without any shares its card or processor with another node, which counts it.
        {node: joules for node, joules in by_node.items() if joules},
        [node for node in done if node not in by_node],
        price,
    )


def kwh_of(joules: float) -> float:
    """Return joules in kWh."""
    return joules / _JOULES_A_KWH


def watt_hours_per_million(joules: float | None, tokens: float) -> float | None:
    """Return Wh per million tokens, None if one of the two is not known."""
    return joules / 3600 / tokens * 1e6 if joules and tokens else None


def cost_of(joules: float | None, price: float) -> float | None:
    """Return the cost of an energy at a price for a kWh, None if one of the two is not known."""
    return kwh_of(joules) * price if joules and price else None


def describe(energy: Energy) -> str:
    """Return an energy in a line: kWh, Wh per million tokens, cost, and who is not in it."""
    parts = [f"{significant(energy.kwh)} kWh"]
    if energy.per_million is not None:
        parts.append(f"{significant(energy.per_million)} Wh per million tokens")
    if energy.cost is not None:
        parts.append(f"{significant(energy.cost)} at {energy.price:g} a kWh")
    without = f" (without {', '.join(energy.unmeasured)})" if energy.unmeasured else ""
    return ", ".join(parts) + without


def significant(number: float, digits: int = 3) -> str:
    """Return a number with `digits` significant digits, without an exponent."""
    if not number:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(number)))
    return f"{round(number, decimals):,.{max(0, decimals)}f}"
