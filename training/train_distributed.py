#!/usr/bin/env python3
"""Fine-tune a language model with LoRA, on one computer or on many unequal ones.

This is the script that `train.yml` starts on every node, and the same that you run by hand:

    python training/train_distributed.py --model smollm2-135m --max-steps 5
    torchrun --nproc-per-node 2 training/train_distributed.py --model smollm2-135m

`--help` explains every setting, `--dry-run` shows which value holds and where it came from.
"""

from __future__ import annotations

import sys

from torch.distributed.elastic.multiprocessing.errors import record

from hearth.config import Run, describe_settings, read_run, resolve_run, write_run
from hearth.config.cli import CommandLine, parse_command_line, rank_from_environment
from hearth.errors import HearthError
from hearth.layout import Layout


def requested_run(typed: CommandLine, layout: Layout) -> Run:
    """Return the run to train: the one in --run-file, or the one that was typed."""
    if typed.run_file:
        return read_run(typed.run_file)
    return resolve_run(typed.given, layout.results, file=typed.config)


def train(run: Run, layout: Layout, by_hand: bool) -> None:
    """Train `run` as one of its ranks."""
    # Imported late, so that --help, a wrong setting and wrong data are answered at once.
    from hearth.prepare import prepare

    # Before joining: a slow download or tokenisation on one rank must not run into the others'
    # time-out.
    prepared = prepare(run, layout, say=print if rank_from_environment() == 0 else lambda _: None)
    from hearth.trainer.loop import Trainer
    from hearth.world import join, leave

    world = join()
    # By hand every rank made up its own name from the time; rank 0's holds.
    run = world.from_leader(run)
    run_file = layout.run_dir(run.name) / "run.yml"
    if by_hand and world.local_rank == 0:
        write_run(run, run_file)
    outcome = Trainer(run, layout, prepared, world).train()
    if world.leads:
        print(f"{outcome}: {run_file.parent}", flush=True)
    leave(world)


@record
def main() -> int:
    """Run the command line; return the exit status: 0, or 2 if the run cannot be."""
    try:
        typed = parse_command_line()
        layout = Layout.from_environment()
        run = requested_run(typed, layout)
        if typed.dry_run:
            print(describe_settings(run))
            return 0
        train(run, layout, by_hand=typed.run_file is None)
    except HearthError as error:
        for finding in error.findings:
            print(f"hearth: error: {finding}", file=sys.stderr, flush=True)
        return 2
    except KeyboardInterrupt:
        print("interrupted; go on from the last checkpoint with --resume RUN", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
