#!/usr/bin/env python3
"""Train a language model, with LoRA or whole, on one computer or on many unequal ones.

This is the script that `train.yml` starts on every node, and the same that you run by hand:

    python training/train_distributed.py
    torchrun --nproc-per-node 2 training/train_distributed.py --model smollm2-135m
    srun --nodes 3 python training/train_distributed.py --model smollm2-135m

Without a model it trains the small preset on the shipped data. `--help` explains every setting,
`--list-models` shows the presets, `--dry-run` the value of every setting and its origin, and
`--preview` the first examples as they will be trained.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hearth.after.finished import check as check_afterwards
from hearth.after.finished import finish_by_hand
from hearth.after.request import ResultRequest
from hearth.base.entry import INTERRUPTED, loading, print_findings, spare_output
from hearth.base.errors import ConfigError, HearthError, MachineError, check_all
from hearth.config import (
    Run,
    describe_settings,
    in_parallel,
    pinned,
    read_run,
    resolve_run,
    run_of,
    run_text,
    write_run,
)
from hearth.config.cli import (
    CommandLine,
    parse_command_line,
    rank_from_environment,
    with_small_model,
)
from hearth.config.layout import Layout
from hearth.fit.catalogue import listing
from hearth.ranks.control import (
    FIRST_USE,
    IMPORTING,
    PREPARING,
    Starting,
    connect,
    exit_with,
    take_ranks_in_place,
)
from hearth.ranks.control_protocol import RANK_AGAIN, RANK_APART
from hearth.ranks.slurm import STEP, take_ranks
from hearth.record.onto import find_adapter
from hearth.record.story import read_story


def requested_run(typed: CommandLine, layout: Layout) -> Run:
    """Return the run to train, from --run-file or from the typed settings."""
    if typed.run_file:
        return read_run(typed.run_file)
    say = print if rank_from_environment() == 0 else lambda _: None
    given, notice = with_small_model(typed)
    if notice:
        say(notice)
    run = resolve_run(given, layout.results, file=typed.config, say=say, find_adapter=find_adapter)
    if notice:
        run = replace(run, origins=run.origins | {"model": "default"})
    # Only the play knows all nodes before the start.
    return in_parallel(run, "ddp") if run.settings.parallel == "auto" else run


def check_first(run: Run) -> None:
    """Check what needs neither torch nor another rank.

    Raises `ConfigError` with everything that is wrong.
    """
    from hearth.model.folder import check_folder
    from hearth.node.preview import check_records  # with NumPy

    checks: list[Callable[[], object]] = [lambda: check_records(run)]
    if run.source.kind == "folder":
        weights = run.source.weights and not run.settings.scratch
        checks.append(lambda: check_folder(Path(run.source.id), weights))
    if rank_from_environment() == 0:
        checks.append(
            lambda: check_afterwards(ResultRequest.from_settings(run.settings), run, print)
        )
    check_all(*checks)


def train(run: Run, layout: Layout, by_hand: bool) -> int:
    """Train `run` as one of its ranks; return the exit status."""
    supervisor = connect()
    starting = Starting(supervisor)
    starting.begin("the import of the libraries", IMPORTING)
    # Imported late, so that --help and a wrong setting are answered soon; Unsloth, where it is the
    # backend, must come before everything that imports transformers.
    with loading():
        from hearth.model.load import prime_backend

        prime_backend(run.settings, layout)
        from hearth.node.prepare import prepare
        from hearth.node.speed import measured_here
        from hearth.ranks.world import GroupBroken, agree, join, leave
        from hearth.trainer.assembly import assemble
        from hearth.trainer.in_place import InPlaceTrainer

    if not by_hand:
        spare_output()
    say = print if rank_from_environment() == 0 else lambda _: None
    starting.begin("preparing model and data", PREPARING)
    prepared = prepare(run, layout, say, judge_fit=by_hand)
    run = pinned(prepared.run, prepared.model.commit, prepared.data.revision)
    starting.begin("measuring", PREPARING)
    measured = measured_here(run, layout, prepared, say)
    starting.begin("the first use of its device", FIRST_USE)
    world = join(
        run.settings.collective_timeout, supervisor=supervisor, wait=starting.wait_for_others
    )
    if STEP in os.environ:  # a MASTER_ADDR of one's own may lead to the ranks of another job
        agree(world, {"Slurm's step": os.environ[STEP]})
    if by_hand:  # every rank derived its own run name from the time; all use rank 0's
        run = run_of(world.from_leader(run_text(run)), "the run of rank 0")
    folder = layout.run_dir(run.name)
    starting.end()
    choices = world.enter() if world.control else None
    try:
        trainer = assemble(run, layout, prepared, measured, world, choices)
    except GroupBroken as broken:  # what has been loaded so far fits no other group
        print(f"hearth: loads again, since a group broke: {broken}", file=sys.stderr, flush=True)
        return RANK_AGAIN
    if by_hand and world.keeps:
        write_run(run, folder / "run.yml")
    try:
        outcome = (InPlaceTrainer(trainer, measured) if world.control else trainer).train()
    except KeyboardInterrupt:
        print(f"\ninterrupted; continue with --resume {run.name}", file=sys.stderr)
        raise
    if world.leads:
        if by_hand and (worse := read_story(folder).worse):
            print(worse)
        print(f"{outcome}: {folder}", flush=True)
        if by_hand and outcome == "finished":
            here = Path(sys.argv[0]).parent
            print(f"talk to it: python {here / 'chat.py'} {run.name}")
            print(f"export it:  python {here / 'export.py'} {run.name} --to ollama", flush=True)
    trainer.work.wait()
    leave(world)
    trainer.work.abandon()
    if world.control:
        world.control.end(outcome, trainer.step)
    if by_hand and world.leads and outcome == "finished":
        del trainer  # it holds the memory that scores need
        finish_by_hand(run, folder)
    return 0


def show_preview(run: Run, layout: Layout, examples: int) -> int:
    """Print the first `examples` of `run` as they will be trained; return the exit status."""
    from hearth.node.preview import check_records, for_preview, lines, preview

    check_records(run)
    if rank_from_environment() == 0:
        found = preview(for_preview(run), layout, examples, lambda _: None)
        print("\n".join(lines(found, colour=sys.stdout.isatty())))
    return 0


def run_command_line() -> int:
    """Run the command line and return the exit status: 0, 2 for an error of the user's.

    It is RANK_AGAIN for a rank that must be started again.
    """
    try:
        typed = parse_command_line()
        if typed.list_models:
            print(listing())
            return 0
        layout = Layout.from_environment()
        run = requested_run(typed, layout)
        if typed.dry_run:
            print(describe_settings(run))
            return 0
        if typed.preview:
            return show_preview(run, layout, typed.preview)
        if by_hand := typed.run_file is None:
            check_first(run)
    except HearthError as error:
        return report(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    # Imported late: torch takes long, and reads OMP_NUM_THREADS, which a step of Slurm may set.
    from torch.distributed.elastic.multiprocessing.errors import record

    return record(train_and_report)(run, layout, by_hand)


def train_and_report(run: Run, layout: Layout, by_hand: bool) -> int:
    """Train `run`, see `train`; an error of the user's is reported."""
    try:
        return train(run, layout, by_hand)
    except HearthError as error:
        return report(error)
    except KeyboardInterrupt:
        return INTERRUPTED


def report(error: HearthError) -> int:
    """Print the findings of an error of the user's and return its exit status.

    It is RANK_APART for an error of this machine that a supervisor has to judge.
    """
    # A wrong setting fails on all ranks; report it once, and once in the log of each supervisor.
    supervised = "HEARTH_NODE" in os.environ
    if rank_from_environment(local=supervised) == 0 or not isinstance(error, ConfigError):
        print_findings(error)
    return RANK_APART if supervised and isinstance(error, MachineError) else 2


def main() -> int:
    """Find this process's rank, run the command line and return the exit status."""
    try:
        take_ranks()
        take_ranks_in_place()
    except HearthError as error:
        return report(error)
    return run_command_line()


if __name__ == "__main__":
    exit_with(main)
