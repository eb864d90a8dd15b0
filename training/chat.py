#!/usr/bin/env python3
"""Talk to what a run has learned, or to the model that it began with.

    python training/chat.py evening                       # the trained model answers; /help
    echo "What is NCCL?" | python training/chat.py evening
    python training/chat.py evening --serve               # OpenAI's API, on this computer alone

RUN is the folder of a run or the name of one in ./runs. A run that has not ended answers from its
newest checkpoint. The answers are greedy, as those in the report, unless --temperature is given.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from hearth.base.entry import exit_status, hush, loading
from hearth.base.errors import check_all
from hearth.config import read_run
from hearth.config.layout import Layout
from hearth.config.run import find_run
from hearth.model.folder import check_folder
from hearth.record.result import find_result


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", metavar="RUN", help="a run: runs/NAME or NAME")
    parser.add_argument(
        "--best",
        action="store_true",
        help="talk to the weights with the lowest held-out loss (best/)",
    )
    parser.add_argument(
        "--temperature", type=_not_negative, default=0.0, metavar="T", help="0 is greedy (default)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of drawn answers")
    parser.add_argument(
        "--max-tokens", type=_positive, default=512, metavar="N", help="longest answer (512)"
    )
    parser.add_argument("--system", default="", metavar="TEXT", help="a system message")
    parser.add_argument(
        "--complete",
        action="store_true",
        help="go on with the text that is typed, without chat template and history",
    )
    parser.add_argument("--cpu", action="store_true", help="leave the GPU alone")
    parser.add_argument(
        "--4bit", dest="four_bit", action="store_true", help="load the models in 4 bits"
    )
    parser.add_argument(
        "--base", type=Path, metavar="FOLDER", help="where the base model is now, or another one"
    )
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run Python code that comes with the base model; read it first",
    )
    parser.add_argument(
        "--serve", action="store_true", help="answer OpenAI's API on loopback instead"
    )
    parser.add_argument(
        "--port", type=_port, default=8000, metavar="N", help="of --serve; 0 is a free one (8000)"
    )
    return parser


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("a whole number from 1 is wanted")
    return number


def _not_negative(text: str) -> float:
    if not 0 <= (number := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError("a number from 0 is wanted")
    return number


def _port(text: str) -> int:
    if not 0 <= (number := int(text)) < 65536:
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return number


def main() -> int:
    """Talk, or serve; return 0.

    Raises `HearthError` if no model can answer.
    """
    given = arguments().parse_args()
    layout = Layout.from_environment()
    folder = find_run(given.run, layout.results)
    run = read_run(folder / "run.yml")
    checkpoints = layout.checkpoints_of(folder, run.name)
    check_all(
        lambda: find_result(folder, run, checkpoints, lambda _: None, given.best),
        *([partial(check_folder, given.base)] if given.base else []),
    )
    # Imported late, so that --help and a wrong request are answered soon.
    with loading():
        hush()
        from hearth.after.answer import Sampling
        from hearth.after.sides import Loading, load_sides
        from hearth.after.terminal import ChatScreen, chat

    screen = ChatScreen()
    how = Loading(given.cpu, given.four_bit, given.best, given.trust_remote_code, given.base)
    if given.serve:
        from hearth.after.endpoint import listening, serve  # loads a web server

        with listening(given.port) as socket:
            serve(load_sides(folder, layout, how, screen.say), run.name, socket, screen)
    sampling = Sampling(given.temperature, given.seed, given.max_tokens)
    sides = load_sides(folder, layout, how, screen.say)
    chat(run, sides, sampling, screen, given.system, given.complete)
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
