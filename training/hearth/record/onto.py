"""Find the adapter that a run is to begin with: that of an earlier run, or one in a folder."""

from __future__ import annotations

import os
from pathlib import Path

from hearth.base.errors import ConfigError, HearthError
from hearth.base.files import path_fault, sha256_of
from hearth.base.places import RUN_NAME
from hearth.base.text import cut
from hearth.config import Run, read_run
from hearth.config.adapter import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    DETERMINED,
    Ancestor,
    FoundAdapter,
    StartAdapter,
    settings_in,
    shapes_in,
)
from hearth.config.run import RUN_FILE, find_run
from hearth.record.story import read_story


def find_adapter(onto: str, runs: Path) -> FoundAdapter:
    """Return the adapter `onto`: a run in the folder `runs`, or a folder with an adapter.

    Raises `ConfigError` if there is none, if it is not whole, or if the run has not ended or has
    trained all weights.
    """
    try:
        return _find(onto, runs)
    except HearthError as error:
        raise ConfigError(*(f"onto: {finding}" for finding in error.findings)) from error


def _find(onto: str, runs: Path) -> FoundAdapter:
    if fault := path_fault(onto):
        raise ConfigError(f"{cut(repr(onto))} can be neither a folder nor a run: {fault}")
    folder = Path(onto).expanduser()
    named = bool(RUN_NAME.fullmatch(onto)) and (runs / onto / RUN_FILE).is_file()
    if named or not (folder / ADAPTER_CONFIG).is_file():
        try:
            place = find_run(onto, runs)
        except ConfigError as error:
            if onto.count("/") != 1 or not all(onto.split("/")) or folder.exists():
                raise
            raise ConfigError(
                *error.findings,
                f"an adapter of the Hub is downloaded first: hf download {onto} --local-dir "
                "FOLDER, then onto=FOLDER",
            ) from error
        name = place.name if place.parent == runs.resolve() else str(place)
        return _of_run(name, place, None)
    adapter = Path(os.path.abspath(folder))
    if (adapter.parent / RUN_FILE).is_file():
        return _of_run(str(adapter), adapter.parent, adapter)
    settings, model = settings_in(adapter)
    return FoundAdapter(str(adapter), _start(adapter), settings, model)


def _of_run(name: str, folder: Path, adapter: Path | None) -> FoundAdapter:
    """Return the adapter of the run in `folder`: the final one, or another `adapter` of it."""
    run = read_run(folder / RUN_FILE)
    if not run.settings.lora:
        raise ConfigError(
            f"{run.name} has trained all weights, and not an adapter; go on from its model with "
            f"model={folder / 'model'} instead"
        )
    story = read_story(folder, skim=True)
    step = None
    if adapter is None:
        adapter, step = folder / "adapter", story.step
        if story.launches and not story.ended:
            raise ConfigError(
                f"{run.name} has not ended; finish it with resume={run.name}, or name the folder "
                "of a checkpoint's adapter"
            )
        if not (adapter / ADAPTER_CONFIG).is_file():
            raise ConfigError(
                f"{adapter}: there is no adapter: {run.name} has not come so far, or its files are "
                f"elsewhere; `hearth attach {run.name}` brings them here"
            )
    ancestor = Ancestor(run.name, run.settings.objective, _data_of(run), step)
    lineage = (ancestor, *(run.start.lineage if run.start else ()))
    return FoundAdapter(
        name,
        _start(adapter, story.facts.model or "", lineage),
        {setting: getattr(run.settings, setting) for setting in DETERMINED},
        run.settings.model if run.source.name == run.settings.model else run.source.id,
        run.source,
    )


def _data_of(run: Run) -> str:
    return " + ".join(Path(name).name for name in run.settings.data_sets)


def _start(adapter: Path, model: str = "", lineage: tuple[Ancestor, ...] = ()) -> StartAdapter:
    """Return the record of the adapter in a folder, whose weights must be whole."""
    file = adapter / ADAPTER_WEIGHTS
    shapes_in(file)
    return StartAdapter(str(file), sha256_of(file), file.stat().st_size, model, lineage)
