"""The speed of a model's parts on this rank: cached from an earlier run, or measured now."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hearth.base.errors import HearthError
from hearth.config import Run
from hearth.config.layout import Layout
from hearth.model import precision
from hearth.node import kept
from hearth.node.layer_probe import MeasuredLayers
from hearth.node.own_speed import measure_aside, most_rows
from hearth.ranks.world import own_device


def case_of(
    run: Run, config: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the case of this rank: everything that the speed of the model's parts depends on.

    `config` is the content of the model's config.json.
    """
    device = own_device(environment)
    chosen = precision.choose(run.settings.precision, [("here", precision.supported(device))])
    text = json.dumps(config, sort_keys=True).encode()
    facts = {"layers": hashlib.sha256(text).hexdigest()[:16]}
    return kept.case(run.settings.at_most(), facts, device, "transformers", chosen, environment)


def kept_layers(
    run: Run,
    layout: Layout,
    config: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
) -> MeasuredLayers | None:
    """Return the measurement from an earlier run, None without one that has all sizes."""
    content = kept.found_in(layout.speeds, case_of(run, config, environment))
    try:
        found = TypeAdapter(MeasuredLayers).validate_python(content)
    except ValidationError:
        return None
    complete = found.saturated or 2 * found.speed.layer.sizes[-1] > most_rows(run.settings)
    return found if complete else None


def keep_layers(
    run: Run, layout: Layout, config: Mapping[str, Any], measured: MeasuredLayers
) -> None:
    """Cache a measurement for the next run."""
    kept.keep(layout.speeds, case_of(run, config), asdict(measured))


def layers_here(
    run: Run,
    layout: Layout,
    config: Mapping[str, Any],
    say: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
) -> MeasuredLayers:
    """Return the speed at which this rank computes parts of the model, measured now if need be.

    In a process of its own, as `measured_here` does.

    Raises `HearthError` if the model cannot be divided, or not even one row fits into the memory.
    """
    if found := kept_layers(run, layout, config, environment):
        return found
    say("measuring how fast this rank computes a layer, once for this model")
    measure_aside("measure-layers", run, environment, {"config": config})
    if found := kept_layers(run, layout, config, environment):
        return found
    raise HearthError(f"{layout.speeds} does not keep what is written there; make it writable")
