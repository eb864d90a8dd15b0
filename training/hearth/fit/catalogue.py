"""The presets as a table: terms and sizes, and which nodes of a cluster each of them fits."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping

from hearth.base.text import aligned
from hearth.config import Preset, Settings, load_preset, preset_names
from hearth.config.shape import Shape
from hearth.fit.capacity import Room
from hearth.fit.verdict import misfits

_GAP = "  "
_NOT_KNOWN = "?"


def listing() -> str:
    """Return the table of all presets with what one may want to know before choosing."""
    titles = ("preset", "parameters", "licence", "gated", "sequence length")
    rows = [
        (*_terms(name, preset), str(_settings(name, preset).sequence_length))
        for name, preset in _presets()
    ]
    return "\n".join(aligned([titles, *rows]))


def fitting(rooms: Mapping[str, Room], columns: int) -> list[str]:
    """Return the lines of a table of which preset fits which node, within so many columns.

    `rooms` holds the room of a rank of each node. Each preset is taken with its own settings and
    one row at once, once with whole weights and once in 4 bits.
    """
    whole = "in 16 bits" if any(room.gpu for room in rooms.values()) else "in 32 bits"
    terms = [("preset", "parameters", "licence", "gated")]
    names: list[tuple[str, str]] = [(f"fits {whole}", "fits in 4 bits")]
    for name, preset in _presets():
        terms.append(_terms(name, preset))
        settings = _settings(name, preset).model_copy(update={"micro_batch": 1})
        each = [settings.model_copy(update={"load_in_4bit": small}) for small in (False, True)]
        names.append(tuple(_fits(name, one, preset.shape, rooms) for one in each))
    left = aligned(terms)
    longest = max(len(word) for text in itertools.chain(*names[1:]) for word in text.split())
    room = max((columns - len(left[0]) - 2 * len(_GAP)) // 2, longest)
    wide = min(room, max(len(text) for text, _ in names))
    lines = []
    for beginning, texts in zip(left, names, strict=True):
        cells = [textwrap.wrap(text, room, break_on_hyphens=False) for text in texts]
        for number in range(max(map(len, cells))):
            first, second = (cell[number] if number < len(cell) else "" for cell in cells)
            start = beginning if number == 0 else " " * len(beginning)
            lines.append(f"{start}{_GAP}{first:<{wide}}{_GAP}{second}".rstrip())
    return lines


def rooms_told(rooms: Mapping[str, Room], columns: int) -> list[str]:
    """Return what the table of `fitting` goes by, in lines of at most so many columns."""
    each = "; ".join(f"{node}: {room.told}" for node, room in rooms.items())
    gpus = " (not verified on GPUs)" if any(room.gpu for room in rooms.values()) else ""
    basis = f"Estimated{gpus}, with each preset's own settings and one row at once. {each}."
    return textwrap.wrap(basis, columns, break_on_hyphens=False)


def _presets() -> list[tuple[str, Preset]]:
    """Return all presets by name, the smallest first, those of unknown size last."""
    found = [(name, load_preset(name)) for name in preset_names()]
    return sorted(
        found, key=lambda one: (one[1].shape is None, one[1].shape and one[1].shape.parameters)
    )


def _settings(name: str, preset: Preset) -> Settings:
    return Settings.model_validate({"model": name, **preset.settings})


def _terms(name: str, preset: Preset) -> tuple[str, str, str, str]:
    """Return name, parameters, licence and whether the Hub wants it accepted."""
    gated = {True: "yes", False: "no", None: _NOT_KNOWN}[preset.gated]
    size = _short(preset.shape.parameters) if preset.shape else _NOT_KNOWN
    return name, size, preset.licence, gated


def _short(parameters: int) -> str:
    """Return a number of parameters as it stands in a model's name."""
    if parameters < 995_000_000:
        return f"{parameters / 1e6:.0f}M"
    return f"{parameters / 1e9:.1f}B"


def _fits(name: str, settings: Settings, shape: Shape | None, rooms: Mapping[str, Room]) -> str:
    """Return the nodes that a preset fits, in words."""
    if shape is None:
        return _NOT_KNOWN
    lacking = misfits(name, settings, shape, rooms)
    having = [node for node in rooms if node not in lacking]
    if len(having) == len(rooms) > 1:
        return "all"
    return ", ".join(having) or "–"
