"""From a run on disk to somebody who answers: at the terminal, or as an endpoint."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from hearth.after.answer import Sampling
from hearth.after.conversation import Conversation
from hearth.after.screen import Screen
from hearth.after.session import Session, described
from hearth.after.sides import Loading, Side, load_sides
from hearth.config import Run, read_run
from hearth.config.layout import Layout
from hearth.data.template import speaks_plainly
from hearth.ranks.world import own_device
from hearth.record.result import find_result, kept_result


@dataclass(frozen=True)
class Wishes:
    """A chat as somebody wants it; with a `port` an endpoint instead, 0 for any that is free."""

    loading: Loading
    sampling: Sampling
    best: bool = False
    system: str = ""
    complete: bool = False
    port: int | None = None


def talk(folder: Path, layout: Layout, wishes: Wishes) -> None:
    """Have the run in `folder` answer until somebody ends it.

    Raises `HearthError` if it has learned nothing yet, or cannot be loaded.
    """
    screen = Screen(Console(highlight=False))
    run = read_run(folder / "run.yml")
    checkpoints = layout.checkpoints_of(folder, run.name)
    device = torch.device("cpu") if wishes.loading.cpu else own_device()

    def load() -> list[Side]:
        with kept_result(
            lambda: find_result(folder, run, checkpoints, screen.say, wishes.best)
        ) as result:
            if remark := result.remark(run.name):
                screen.say(remark, "yellow")
            return load_sides(run, folder, result, wishes.loading, device, layout, screen.say)

    if wishes.port is None:
        _chat(run, load(), wishes, screen)
        return
    from hearth.after.endpoint import listening, serve  # loads a web server

    with listening(wishes.port) as socket:
        serve(load(), run.name, socket, screen)


def _chat(run: Run, sides: list[Side], wishes: Wishes, screen: Screen) -> None:
    """Let a person talk to `sides` at the terminal, in whatever characters it has."""
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(errors="replace")
    # Who learned from token shards alone has never seen a conversation.
    complete = wishes.complete or bool(run.token_shards)
    names = " and ".join(side.name for side in sides)
    screen.say(f"{names} of {run.name}; {described(wishes.sampling)}; /help", style="bold")
    if complete:
        screen.say("each line is a text to go on with, without chat template and history")
    elif speaks_plainly(sides[-1].tokenizer):
        screen.say("this model has no chat template, and learned from `User: …` `Assistant: …`")
    conversations = [Conversation(side, wishes.system, complete) for side in sides]
    Session(conversations, wishes.sampling, screen).run()
