"""The tables of docs/large-models.md: what a home of three cards could train, predicted.

    python -m tests.support.large_models

prints them. Nothing is measured: the speed of a card is what its maker publishes, times a part of
it that training reaches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hearth.base.errors import ModelError
from hearth.config import Settings, load_preset
from hearth.config.shape import Shape
from hearth.fit.capacity import GIB, Room
from hearth.fit.home import Candidate, Links, home_of
from hearth.plan.place import place
from hearth.plan.placement import Home, LayerSpeed, Pipeline
from hearth.plan.speed import Speed

REACHED = 0.4
"""Part of its published speed that a card is assumed to reach."""

_PASSES = 3
"""Forward, again for the backward pass (checkpointing), and the gradients of the activations:
frozen weights have none of their own."""

MBIT = {"1 Gbit/s": 940, "2.5 Gbit/s": 2350, "10 Gbit/s": 9400}
"""Bits that TCP carries over links of these names."""

HELD = 300 << 20
"""Bytes of each card that its driver keeps and a small desktop holds."""

MICRO_BATCHES = 16

TOKENS = 1024
SHORTER = (896, 768, 640, 512)
"""Tokens of a row, and those that are tried where that does not fit."""

PRESETS = ("llama2-13b", "qwen3-30b-a3b", "qwen3-32b", "llama2-70b", "llama3.1-70b", "glm-4.5-air")


@dataclass(frozen=True)
class Card:
    """A card: its memory in GiB, and 10^12 bf16 operations a second (dense, fp32 sums).

    Source: NVIDIA's architecture whitepapers; of the laptop's card its AI TOPS, divided by eight.
    """

    name: str
    memory: int
    tera: float


HOME = {
    "tower": Card("RTX 5070 Ti", 16, 87.9),
    "laptop": Card("RTX 4070 Laptop", 8, 40.1),
    "oldbox": Card("RTX 3070 Ti", 8, 43.5),
}
LARGER = {name: Card("RTX 3090", 24, 71.0) for name in ("one", "two", "three")}


def layer_speed(shape: Shape, tokens: int, card: Card) -> LayerSpeed:
    """Return the assumed speed of `card` for one row of `tokens`."""

    def seconds(weights: float, passes: int) -> Speed:
        return Speed((1,), (2 * weights * tokens * passes / (card.tera * 1e12 * REACHED),))

    idle = (shape.num_experts - shape.num_experts_per_tok) * shape.expert_parameters
    used = (shape.linear_parameters - shape.expert_layers * idle) / shape.num_hidden_layers
    # Each token attends to all before it: two products over half of the row.
    used += tokens * shape.query_size
    return LayerSpeed(
        seconds(used, _PASSES),
        seconds(1, 1),  # a lookup
        seconds(shape.vocab_size * shape.hidden_size, 2),
    )


def home(preset: str, cards: Mapping[str, Card], mbit: float, tokens: int = TOKENS) -> Home:
    """Return the home that `cards` are for a preset in 4 bits, over links of `mbit`."""
    shape, settings = _of(preset, tokens)
    ranks = [
        Candidate(
            name,
            Room(card.memory * GIB - HELD, card.name, held=HELD),
            layer_speed(shape, settings.sequence_length, card),
        )
        for name, card in cards.items()
    ]
    rates = {name: dict.fromkeys(cards, mbit) for name in cards}
    delays = {name: dict.fromkeys(cards, 0.3) for name in cards}
    return home_of(settings, shape, ranks, Links(rates, delays))


def _of(preset: str, tokens: int = TOKENS) -> tuple[Shape, Settings]:
    found = load_preset(preset)
    assert found.shape
    own = {"load_in_4bit": True, "gradient_checkpointing": True, "parallel": "pipeline"}
    step = {"global_batch": MICRO_BATCHES, "sequence_length": tokens}
    return found.shape, Settings.model_validate({"model": preset, **found.settings, **own, **step})


def placed(
    preset: str, cards: Mapping[str, Card], mbit: float, tokens: int = TOKENS
) -> Pipeline | None:
    """Return the fastest placement of a preset in 4 bits, None if it does not fit."""
    layers = _of(preset)[0].num_hidden_layers
    try:
        return place(home(preset, cards, mbit, tokens), layers, MICRO_BATCHES, 1)
    except ModelError:
        return None


def table(cards: Mapping[str, Card]) -> Iterator[str]:
    """Yield the lines of a Markdown table: layers by node, and tokens a second by link.

    A preset that does not fit has a second line if it does in `SHORTER` rows.
    """
    yield f"| preset | layers: {', '.join(cards)} | {' | '.join(MBIT)} |"
    yield f"|---|---|{'--:|' * len(MBIT)}"
    for preset in PRESETS:
        if all(line := _placements(preset, cards, TOKENS)):
            yield _line(f"`{preset}`", line, cards, TOKENS)
            continue
        yield f"| `{preset}` | does not fit |{' – |' * len(MBIT)}"
        for tokens in SHORTER:
            if all(line := _placements(preset, cards, tokens)):
                yield _line(f"`{preset}`, rows of {tokens}", line, cards, tokens)
                break


def _placements(preset: str, cards: Mapping[str, Card], tokens: int) -> list[Pipeline | None]:
    """Return the placement of a preset over each link of `MBIT`."""
    return [placed(preset, cards, mbit, tokens) for mbit in MBIT.values()]


def _line(
    title: str, found: Sequence[Pipeline | None], cards: Mapping[str, Card], tokens: int
) -> str:
    """Return a table's line of placements that all exist."""
    pipelines = [each for each in found if each]
    held = {stage.rank: len(stage.layers) for stage in pipelines[0].placement.stages}
    layers = " + ".join(str(held.get(rank, 0)) for rank in range(len(cards)))
    speeds = " | ".join(f"{each.rows_per_second * tokens:,.0f}" for each in pipelines)
    return f"| {title} | {layers} | {speeds} |"


if __name__ == "__main__":
    for cards in (HOME, LARGER):
        print("\n".join(table(cards)), end="\n\n")
