"""Evaluation of what a run has trained, and of what it began with, by lm-eval.

It needs the extra `eval`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hearth.after.scores import Score, scores_of
from hearth.after.sides import BASE, Loading, Side, does_not_fit, load_sides
from hearth.base.errors import ModelError
from hearth.config import read_run
from hearth.config.layout import Layout
from hearth.ranks.memory import is_out_of_memory
from hearth.ranks.world import own_device
from hearth.record.result import find_result

_BATCH_ON_A_CPU = 8
_BOOTSTRAP = 1000
"""Samples for the standard error of a metric that has no formula of its own."""


def compare(
    folder: Path,
    tasks: Sequence[Any],
    limit: int | None,
    best: bool,
    say: Callable[[str], None],
) -> list[Score]:
    """Return the scores of the run in `folder` on loaded `tasks`, at most `limit` examples each.

    With `best` those of the weights with the lowest held-out loss.

    Raises `ModelError` if a model cannot be had, is another than the run's, or does not fit.
    """
    run, layout, device = read_run(folder / "run.yml"), Layout.from_environment(), own_device()
    result = find_result(folder, run, layout.checkpoint_dir(run.name), say, best)
    loading = Loading(trust_remote_code=run.settings.trust_remote_code)
    sides = load_sides(run, folder, result, loading, device, layout, say)
    found: dict[str, Any] = {}
    for side in sides:
        say(f"eval: {'before' if side.name == BASE else 'after'} the training …")
        try:
            found[side.name] = _evaluate(side, tasks, limit)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise ModelError(does_not_fit(result.folder, device, loading)) from error
    return scores_of(found[sides[-1].name], found.get(BASE))


def _evaluate(side: Side, tasks: Sequence[Any], limit: int | None) -> dict[str, Any]:
    """Return lm-eval's results for one model."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.huggingface import HFLM

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    on_cpu = side.network.device.type == "cpu"
    model = HFLM(
        pretrained=side.network,
        tokenizer=side.tokenizer,
        backend="causal",
        batch_size=_BATCH_ON_A_CPU if on_cpu else "auto",
    )
    with _quiet():
        return simple_evaluate(
            model, tasks=list(tasks), limit=limit, bootstrap_iters=_BOOTSTRAP, log_samples=False
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop standard error unless it is a terminal: lm-eval's bars would fill a log."""
    if sys.stderr.isatty():
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
