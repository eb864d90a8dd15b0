"""The parts that a run asks for once it has finished: scores, then a copy, then a push.

Each part is done by itself. A failure is reported and recorded with the command that repeats the
part, and the other parts are still done.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from hearth.after.request import Again, ResultRequest, by_hand
from hearth.after.scores import rows_of
from hearth.base.errors import ConfigError, HearthError, check_all
from hearth.base.hub import brief_scrubbed, scrub
from hearth.base.text import aligned
from hearth.config import Run, read_run
from hearth.config.layout import Layout
from hearth.config.run import RUN_FILE
from hearth.record.events import RunEvent, ScoresEvent, SharedEvent
from hearth.record.lines import METRICS
from hearth.record.result import Result, find_result
from hearth.record.story import read_story

Say = Callable[[str], None]


def check(request: ResultRequest, run: Run, say: Say) -> None:
    """Check that all of `request` can be done on this node once `run` has finished.

    Each part imports its own libraries: a run without one does without them.

    Raises `HearthError` with everything that is in the way.
    """
    check_all(*(partial(_check_part, part, run, say) for part in request.parts))


def check_finished(folder: Path, request: ResultRequest, say: Say) -> None:
    """Check that all of `request` can be done on this node for the run in `folder`.

    Raises `HearthError` with everything that is in the way.
    """
    check_all(
        lambda: _finished(folder, request, lambda _: None),
        lambda: check(request, read_run(folder / RUN_FILE), say),
    )


def _finished(folder: Path, request: ResultRequest, say: Say) -> tuple[Run, Result]:
    """Return the finished run in `folder`, and its result. Raises `HearthError` without one."""
    run = read_run(folder / RUN_FILE)
    checkpoints = Layout.from_environment().checkpoint_dir(run.name)
    result = find_result(folder, run, checkpoints, say, request.best)
    if result.step is not None:
        raise ConfigError(
            f"{folder}: the run has not finished; finish it with resume={run.name} first"
        )
    return run, result


def _check_part(part: ResultRequest, run: Run, say: Say) -> None:
    match part.kind:
        case "eval":
            from hearth.after.scoring import check_tasks

            check_tasks(part.eval, say)
        case "copy_to":
            from hearth.after.copies import check_copy

            check_copy(part.copy_to, run, say)
        case _:
            from hearth.after.push import check_push

            check_push(part.push, part.private)


def afterwards(folder: Path, request: ResultRequest, again: Again, say: Say) -> bool:
    """Do `request` for the finished run in `folder`; return whether all of it was done.

    `again` names the command that repeats a part.

    Raises `HearthError` if the folder holds no finished run.
    """
    run, result = _finished(folder, request, say)
    left, done = request.parts, True
    try:
        while left:
            done = _attempt(left[0], run, folder, result, again, say) and done
            left = left[1:]
    except (SystemExit, KeyboardInterrupt):  # another run takes the node, or a person stopped it
        for part in left:
            error = f"{part.kind}: ended before it was done"
            _record(folder, SharedEvent(what=part.kind, error=error, again=again(part)), say)
        raise
    return done


def _attempt(
    part: ResultRequest, run: Run, folder: Path, result: Result, again: Again, say: Say
) -> bool:
    """Do one part and record its outcome; return whether it was done."""
    why = ""
    try:
        event = _do(part, run, folder, result, say)
    except HearthError as error:
        why = "; ".join(error.findings)
    except Exception as error:  # a bug of a library must not hide that the run has finished
        why = f"{part.kind}: {type(error).__name__}: {brief_scrubbed(error)}"
    if why:
        event = SharedEvent(what=part.kind, error=why, again=again(part))
        say(f"{why}. Nothing is lost: the weights are in {result.folder}")
        say(f"again: {event.again}")
    _record(folder, event, say)
    return not why


def _do(part: ResultRequest, run: Run, folder: Path, result: Result, say: Say) -> RunEvent:
    """Do one part; return the event to record."""
    match part.kind:
        case "eval":
            from hearth.after.scoring import evaluate_run

            say(f"eval: {', '.join(part.eval)}")
            scores = evaluate_run(folder, part.eval, part.eval_limit, part.best, say)
            for line in aligned(rows_of(scores)):
                say(f"  {line}".rstrip())
            return ScoresEvent(scores=scores, limit=part.eval_limit)
        case "copy_to":
            from hearth.after.copies import copy_result

            say(f"copy_to: {scrub(part.copy_to)}")
            texts = {"README.md": _card(run, run.name, folder)}
            texts[RUN_FILE] = (folder / RUN_FILE).read_text(encoding="utf-8")
            files = {result.folder.name: result.folder, METRICS: folder / METRICS}
            place = scrub(copy_result(part.copy_to, run, files, texts, say))
            say(f"copied to {place}")
            return SharedEvent(what=part.kind, place=place)
        case _:
            from hearth.after.push import push

            private = "private" if part.private else "public"
            say(f"push: {part.push} ({private})")
            source = run.source
            base = source.name if source.kind == "folder" else None
            card = _card(run, part.push, folder)
            page = push(result.folder, part.push, part.private, card, base, say)
            say(f"pushed to {page}")
            return SharedEvent(what=part.kind, place=page, private=part.private)


def _card(run: Run, name: str, folder: Path) -> str:
    from hearth.after.card import card_text

    return card_text(run, name, read_story(folder))


def _record(folder: Path, event: RunEvent, say: Say) -> None:
    """Append an event to the record of a run; a resumed run drops it again (`when`)."""
    event.step, event.when = read_story(folder, skim=True).step, "after"
    event.time = datetime.now(UTC).isoformat(timespec="milliseconds")
    metrics = folder / METRICS
    try:
        with metrics.open("a", encoding="utf-8") as file:
            file.write(event.line)
    except OSError as error:  # a full disk must keep none of the other parts from being done
        say(f"{metrics}: {error.strerror}, so that it lacks {event.line.rstrip()}")


def finish_by_hand(run: Run, folder: Path) -> None:
    """Do what the finished `run` in `folder` asks for, on rank 0 of a run started by hand.

    A part that fails is reported and recorded.
    """
    request = ResultRequest.from_settings(run.settings)
    if not request.parts:
        return
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    afterwards(folder, request, by_hand(os.path.relpath(folder)), print)
