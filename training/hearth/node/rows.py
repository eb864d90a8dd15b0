"""The rows of a run's data, with the settings of its steps resolved for these data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hearth.base.errors import DataError
from hearth.base.text import counted
from hearth.config import Run, Settings, in_steps, load_preset, preset_names
from hearth.config.layout import Layout
from hearth.config.settings import LARGEST
from hearth.config.shards import Shard
from hearth.data.load import TokenData, Tokenised, load_data, read_tokens
from hearth.data.locate import LocalFile, LocalFiles
from hearth.data.mixture import load_mixture
from hearth.data.shards.load import load_shards
from hearth.data.stream import load_stream
from hearth.plan.row_order import choose_order
from hearth.plan.steps import (
    Lengths,
    advised_rate,
    describe_automatic,
    describe_batch,
    settle_rows,
    settle_warmup,
    warnings,
)


def load_rows(
    run: Run,
    layout: Layout,
    shards: Mapping[Shard, Path],
    tokenizer: Any,
    stops: Sequence[int],
    positions: int | None,
    vocabulary: int,
    say: Callable[[str], None],
) -> tuple[Run, TokenData]:
    """Return `run` with the settings of its steps resolved, and its data as such rows.

    `shards` has the paths of its token shards and other files that were brought here. The model's
    generation stops at the tokens `stops`; it knows `positions` and a `vocabulary`.

    Raises `HearthError` with the problems found in the data.
    """
    if run.token_shards:
        run = in_steps(run, settle_rows(run.settings, None, positions))
        data = _load_shards(run, layout, shards, vocabulary, say)
    elif run.settings.streaming:
        run = in_steps(run, settle_rows(run.settings, None, positions))
        data = load_stream(
            next(iter(layout.datasets(run).values())),
            tokenizer,
            revision=run.data_revision,
            columns=run.settings.columns,
            stops=stops,
            **_form(run.settings),
            say=say,
        )
    else:
        shares = _read_all(run, layout, shards, tokenizer, stops, say)
        lengths = _lengths(shares, run.settings.held_out)
        run = in_steps(run, settle_rows(run.settings, lengths, positions))
        load = load_mixture if len(shares) > 1 else load_data
        data = load(
            shares if len(shares) > 1 else next(iter(shares)),
            tokenizer,
            cache=layout.tokens,
            **_form(run.settings),
            say=say,
        )
    return in_steps(run, settle_warmup(run.settings, _steps(run.settings, data))), data


def describe_steps(run: Run, data: TokenData) -> list[str]:
    """Return lines about the steps of a run, with a hint at the learning rate if one is due."""
    settings, report = run.settings, data.report
    steps = _steps(settings, data)
    lines: list[str | None] = [describe_batch(settings, report.rows, report.tokens, steps)]
    names = (*LARGEST, "warmup_steps")
    automatic = [name for name in names if run.origins.get(name) == "auto"]
    examples = getattr(report, "examples", None)  # token shards have none
    size = f"{report.tokens} tokens"
    lines.append(
        describe_automatic(
            settings,
            automatic,
            f"{counted(examples, report.noun)} with {size}" if examples else size,
        )
    )
    lines += warnings(settings, report.rows, steps)
    if settings.model in preset_names():
        preset = load_preset(settings.model)
        of_data = preset.with_shards if run.token_shards else {}
        tuned = Settings(model=settings.model, **preset.settings | of_data)
        lines.append(advised_rate(settings, tuned))
    return [line for line in lines if line]


def _steps(settings: Settings, data: TokenData) -> int:
    """Return the number of steps of a run."""
    order = choose_order(settings, data.report.rows, data.parts)
    return order.steps(settings.epochs, settings.max_steps)


def _form(settings: Settings) -> dict[str, Any]:
    """Return the arguments that make rows of tokens."""
    names = ("sequence_length", "packing", "held_out", "seed")
    return {name: getattr(settings, name) for name in names}


def _load_shards(
    run: Run,
    layout: Layout,
    shards: Mapping[Shard, Path],
    vocabulary: int,
    say: Callable[[str], None],
) -> TokenData:
    """Return the rows of token shards."""
    return load_shards(
        [shards[shard] for shard in run.token_shards if not shard.validation],
        [shards[shard] for shard in run.token_shards if shard.validation],
        sequence_length=run.settings.sequence_length,
        validation_tokens=run.settings.validation_tokens,
        vocabulary=vocabulary,
        cache=layout.tokens,
        say=say,
    )


def _read_all(
    run: Run,
    layout: Layout,
    shards: Mapping[Shard, Path],
    tokenizer: Any,
    stops: Sequence[int],
    say: Callable[[str], None],
) -> dict[Tokenised, float]:
    """Return the tokens of each data set of a run with its share.

    Raises `DataError` with the problems found in all of them.
    """
    settings = run.settings
    in_mixture = len(settings.data_sets) > 1
    places: dict[str, Any] = dict(layout.datasets(run))
    for name in settings.data_sets:
        if files := run.files_of(name):
            brought = (LocalFile(shards[each], each.path) for each in files)
            places[name] = LocalFiles(tuple(brought), name)
        elif run.data_checksums[name]:
            places[name] = LocalFile(Path(places[name]), name)  # messages say what was typed
    shares, findings = dict[Tokenised, float](), list[str]()
    for name, share in settings.data_sets.items():
        try:
            read = read_tokens(
                places[name],
                tokenizer,
                layout.tokens,
                settings.columns,
                in_mixture,
                stops,
                say,
                settings.objective,
            )
            shares[read] = share
        except DataError as error:
            findings += error.findings
    if findings:
        raise DataError(*findings)
    return shares


def _lengths(data: Mapping[Tokenised, float], held_out: float) -> Lengths:
    """Return the lengths of the training documents of all data sets."""
    chats, texts = zip(*(each.lengths(held_out) for each in data), strict=True)
    return Lengths(np.concatenate(chats), np.concatenate(texts))
