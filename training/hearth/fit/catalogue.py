"""The presets as a table: licence, size, and the nodes of a cluster that each preset fits."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hearth.base.text import aligned
from hearth.config import Preset, Settings, load_preset, preset_names
from hearth.config.conflicts import conflicts_of
from hearth.config.shape import Shape
from hearth.fit.capacity import Room, automatic_precision
from hearth.fit.home import Candidate, rooms_by_node, unplaceable
from hearth.fit.misfits import lacking

_NOT_KNOWN = "?"


def listing() -> str:
    """Return a table of all presets: parameters, licence, gated access and sequence length."""
    titles = ("preset", "parameters", "licence", "gated", "sequence length")
    rows = [
        (*_terms(name, preset), str(_settings(name, preset).at_most().sequence_length))
        for name, preset in _presets()
    ]
    return "\n".join(aligned([titles, *rows]))


@dataclass(frozen=True)
class Fitting:
    """A preset, and where it fits.

    Attributes:
        parameters, gated: None if they are not known.
        nodes: by width of the weights (`in 16 bits`) the nodes that hold the whole model; None for
            a model of unknown shape.
        divided: the widest weights whose layers fit over all ranks; None if they do not, and for
            one rank.
    """

    preset: str
    parameters: int | None
    licence: str
    gated: bool | None
    nodes: Mapping[str, Sequence[str]] | None
    divided: str | None


def fittings(ranks: Sequence[Candidate]) -> list[Fitting]:
    """Return each preset with the nodes of `ranks` that it fits.

    Each preset is estimated with its own settings and a micro-batch of one row: with unquantised
    weights, in 8 bits and in 4; and with its layers over all ranks (`parallel: pipeline`), in the
    most of these bits that fit.
    """
    rooms = rooms_by_node(ranks)
    whole = "in 32 bits" if automatic_precision(rooms.values()) == "fp32" else "in 16 bits"
    widths = {whole: 16, "in 8 bits": 8, "in 4 bits": 4}
    found = []
    for name, preset in _presets():
        shape = preset.shape
        settings = _settings(name, preset).model_copy(update={"micro_batch": 1})
        each = {
            width: settings.model_copy(
                update={"load_in_8bit": bits == 8, "load_in_4bit": bits == 4}
            )
            for width, bits in widths.items()
        }
        nodes = shape and {width: _fits(one, shape, rooms) for width, one in each.items()}
        divided = (width for width, one in each.items() if _fits_divided(one, shape, ranks))
        found.append(
            Fitting(
                name,
                shape and shape.parameters,
                preset.licence,
                preset.gated,
                nodes,
                next(divided, None) if len(ranks) > 1 else None,
            )
        )
    return found


def fitting_lines(found: Sequence[Fitting], ranks: Sequence[Candidate]) -> list[str]:
    """Return the lines of a table of `fittings`."""
    names = list(dict.fromkeys(rank.node for rank in ranks))
    widths = next(each.nodes for each in found if each.nodes is not None)
    over = [f"over all {'nodes' if len(names) > 1 else 'ranks'}"] * (len(ranks) > 1)
    rows = [("preset", "parameters", "licence", "gated", *(f"fits {w}" for w in widths), *over)]
    for each in found:
        if each.nodes is None:
            where = [_NOT_KNOWN] * len(widths)
        else:
            where = [_named(nodes, names) for nodes in each.nodes.values()]
        together = [each.divided or (_NOT_KNOWN if each.nodes is None else "–")] * len(over)
        rows.append((*_terms(each.preset, load_preset(each.preset)), *where, *together))
    return [line.rstrip() for line in aligned(rows)]


def describe_rooms(ranks: Sequence[Candidate], columns: int) -> list[str]:
    """Describe the assumptions behind the table of `fitting`, in lines of at most `columns`."""
    of_node: dict[str, dict[str, None]] = {}
    for rank in ranks:
        of_node.setdefault(rank.node, {})[rank.room.description] = None
    each = "; ".join(f"{node}: {', '.join(rooms)}" for node, rooms in of_node.items())
    gpus = " (not verified on GPUs)" if any(rank.room.gpu for rank in ranks) else ""
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
    """Return name, parameters, licence and whether the Hub requires accepting the licence."""
    gated = {True: "yes", False: "no", None: _NOT_KNOWN}[preset.gated]
    size = _short(preset.shape.parameters) if preset.shape else _NOT_KNOWN
    return name, size, preset.licence, gated


def _short(parameters: int) -> str:
    """Format a number of parameters as model names do: 135M, 1.5B."""
    if parameters < 995_000_000:
        return f"{parameters / 1e6:.0f}M"
    return f"{parameters / 1e9:.1f}B"


def _named(nodes: Sequence[str], names: Sequence[str]) -> str:
    """Return nodes as a cell: "all", their names, or "–" for none."""
    if len(nodes) == len(names) > 1:
        return "all"
    return ", ".join(nodes) or "–"


def _fits(settings: Settings, shape: Shape, rooms: Mapping[str, Room]) -> list[str]:
    """Return the nodes that a preset fits."""
    if not _is_possible(settings, shape):
        return []
    small = lacking(settings, shape, rooms)
    return [node for node in rooms if node not in small]


def _fits_divided(settings: Settings, shape: Shape | None, ranks: Sequence[Candidate]) -> bool:
    """Return whether the layers of a preset fit over all `ranks`."""
    pipeline = settings.model_copy(update={"parallel": "pipeline"})
    if shape is None or not _is_possible(pipeline, shape):
        return False
    return not unplaceable(pipeline, shape, ranks)


def _is_possible(settings: Settings, shape: Shape) -> bool:
    """Return whether a preset can be trained so, if there is memory.

    Weights that learn are not kept in 4 bits, nor experts in 8.
    """
    return not conflicts_of(settings) and not (settings.load_in_8bit and shape.num_experts)
