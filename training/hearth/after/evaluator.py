"""Scores of what a run has trained, and of its base model, by lm-eval, in a process of its own.

It needs the extra `eval`.
"""

from __future__ import annotations

import difflib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hearth.after.scores import Score, scores_of
from hearth.after.sides import BASE, Loading, Side, does_not_fit, load_sides
from hearth.base.errors import ConfigError, ModelError
from hearth.base.text import brief, listed
from hearth.config import read_run
from hearth.config.layout import Layout
from hearth.config.settings import is_file
from hearth.ranks.memory import is_out_of_memory

_NEAREST = 3
_BATCH_ON_A_CPU = 8
_BOOTSTRAP = 1000
"""Samples for the standard error of a metric that has no formula of its own."""


def load_tasks(entries: Sequence[str]) -> list[Any]:
    """Return lm-eval's tasks, with their examples; those of the Hub are then in its cache.

    Raises `ConfigError` with everything that is wrong with `entries`.
    """
    from lm_eval.tasks import TaskManager

    names = [entry for entry in entries if not is_file(entry)]
    manager = TaskManager(include_defaults=bool(names))  # to index all takes ten seconds
    known = manager.all_tasks
    findings = [_unknown(name, known) for name in names if name not in known]
    if findings:
        raise ConfigError(*findings)
    loaded: dict[str, Any] = {}
    for entry in entries:
        for task in _load(manager, entry):
            name = getattr(task, "task_name", None) or task.name
            if name in loaded:
                findings.append(f"eval: {entry}: the task {name} is given twice; leave one out")
            if getattr(task, "UNSAFE_CODE", False):
                findings.append(
                    f"eval: {entry} runs code that the model writes, which Hearth does not do on a "
                    "node; leave it out"
                )
            loaded[name] = task
    if findings:
        raise ConfigError(*findings)
    return list(loaded.values())


def _load(manager: Any, entry: str) -> list[Any]:
    """Return the tasks and groups of one entry. Raises `ConfigError` if they do not load."""
    from lm_eval.tasks._yaml_loader import load_yaml

    try:
        spec = load_yaml(entry, resolve_func=True) if is_file(entry) else entry
        found = manager.load([spec])
    except Exception as error:  # each task is a program of its own
        raise ConfigError(
            f"eval: {entry} cannot be loaded on this node: {brief(error)}; check the node's "
            "connection to the Hub, or the file, or leave the task out"
        ) from error
    # A group stands for its tasks.
    inside = {name for names in found["group_map"].values() for name in names}
    named = {**found["tasks"], **found["groups"]}
    return [item for name, item in named.items() if name not in inside]


def _unknown(name: str, known: Sequence[str]) -> str:
    """Return the finding for a task that lm-eval does not have."""
    near = difflib.get_close_matches(name, known, n=_NEAREST, cutoff=0.6)
    hint = f"; near it are {listed(near)}" if near else ""
    return (
        f"eval: lm-eval has no task '{name}'{hint}; it lists them at "
        "https://github.com/EleutherAI/lm-evaluation-harness/tree/main/lm_eval/tasks, and a task "
        "of your own is a file ending in .yaml"
    )


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
    allowed = read_run(folder / "run.yml").settings.trust_remote_code
    loading = Loading(best=best, trust_remote_code=allowed)
    sides = load_sides(folder, Layout.from_environment(), loading, say)
    found: dict[str, Any] = {}
    for side in sides:
        say(f"eval: {'before' if side.name == BASE else 'after'} the training …")
        try:
            found[side.name] = _evaluate(side, tasks, limit)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise ModelError(does_not_fit(folder, side.network.device, loading)) from error
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
