"""Parser of the lines typed into a chat: prompts, and commands that begin with `/`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hearth.base.errors import ConfigError, did_you_mean

ENDS = ("quit", "exit")
BOTH = "both"


@dataclass(frozen=True)
class Line:
    """A line that was typed: a `command` with its `argument`, or without a command a prompt."""

    command: str
    argument: str


def parse_line(typed: str, sides: Sequence[str]) -> Line:
    """Parse a typed line, where `sides` are the names of the models.

    A prompt that itself begins with `/` is typed with two.

    Raises `ConfigError` if there is no such command or its argument is wrong.
    """
    text = typed.strip()
    if text.startswith("//") or not text.startswith("/"):
        return Line("", text.removeprefix("/") if text.startswith("//") else text)
    command, _, argument = text[1:].partition(" ")
    argument = argument.strip()
    known = [*sides, BOTH, "reset", "temperature", "seed", "help", *ENDS]
    if command not in known:
        raise ConfigError(f"/{command}: no such command{did_you_mean(command, known)}; /help")
    if command == "temperature":
        _check(argument, float, "a number from 0, such as /temperature 0.7")
    elif command == "seed":
        _check(argument, int, "a whole number from 0, such as /seed 7")
    elif argument and command not in sides:
        raise ConfigError(f"/{command} takes no argument; begin a prompt with // if it is one")
    return Line(command, argument)


def help_lines(sides: Sequence[str]) -> list[tuple[str, str]]:
    """Return the commands with what each does."""
    several = [
        (f"/{name}", f"only {name} answers; with a prompt, that one alone") for name in sides
    ]
    return [
        *(several if len(sides) > 1 else []),
        *([(f"/{BOTH}", "both answer")] if len(sides) > 1 else []),
        ("/reset", "begin a new conversation"),
        ("/temperature T", "0 is greedy, the same answer each time; 0.7 draws by chance"),
        ("/seed N", "draw other answers"),
        ("/quit", "end, as does Ctrl-D; Ctrl-C stops an answer"),
        ("//TEXT", "a prompt that begins with /"),
    ]


def _check(text: str, kind: type, wanted: str) -> None:
    try:
        fits = 0 <= kind(text) < 2**63
    except ValueError:
        fits = False
    if not fits:
        raise ConfigError(f"'{text}': {wanted}")
