"""A chat at a terminal, or with prompts from a pipe: read a line, show the answer, again."""

from __future__ import annotations

import re
import readline  # noqa: F401  Gives input() its editing and history.
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from hearth.after.answer import ChatAnswer, Conversation, Sampling
from hearth.after.sides import Side
from hearth.base.errors import ConfigError, HearthError, ModelError, did_you_mean
from hearth.base.text import aligned, plain
from hearth.config import Run
from hearth.data.template import speaks_plainly
from hearth.ranks.memory import is_out_of_memory, release

_PROMPT = "> "
_ENDS = ("quit", "exit")
_OTHER_SPACE = re.compile(r"[^\S\n\t]")
_NOTES = {"length": ", cut by --max-tokens", "interrupted": ", stopped"}


class ChatScreen:
    """Shows text on `console`, without a model's commands to the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)

    def say(self, text: str, style: str = "dim") -> None:
        """Print lines that are no answer."""
        self._console.print(Text(plain(text), style=style), soft_wrap=True)

    def pairs(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print rows of a name and its meaning, each as one line that can be copied."""
        for line in aligned(rows):
            self._console.print(Text(f"  {line}".rstrip()), soft_wrap=True)

    def show(self, ask: Callable[[Callable[[str], None]], ChatAnswer]) -> ChatAnswer:
        """Print the answer that `ask` gives piece by piece, then its length and speed."""
        began = False

        def add(piece: str) -> None:
            nonlocal began
            text = plain(_OTHER_SPACE.sub(" ", piece))
            text = text if began else text.lstrip()
            began = began or bool(text)
            self._console.print(Text(text), end="", soft_wrap=True)

        try:
            found = ask(add)
        finally:
            if began:
                self._console.print()
        rate = f", {found.tokens / found.seconds:.1f} tokens/s" if found.seconds else ""
        none = "" if found.text.strip() else ": it says nothing"
        self.say(f"({found.tokens} tokens{rate}{_NOTES.get(found.end, none)})")
        return found


def parse_line(typed: str, names: Sequence[str]) -> tuple[str, str]:
    """Return the command of a typed line and its argument; "" and the text for a prompt.

    `names` are those of the models. A prompt that itself begins with `/` is typed with two.

    Raises `ConfigError` if there is no such command or its argument is wrong.
    """
    text = typed.strip()
    if text.startswith("//") or not text.startswith("/"):
        return "", text.removeprefix("/") if text.startswith("//") else text
    command, _, argument = text[1:].partition(" ")
    known = [*names, "reset", "temperature", "seed", "help", *_ENDS]
    if command not in known:
        raise ConfigError(f"/{command}: no such command{did_you_mean(command, known)}; /help")
    if command == "temperature":
        _check(argument, float, "a number from 0, such as /temperature 0.7")
    elif command == "seed":
        _check(argument, int, "a whole number from 0, such as /seed 7")
    elif argument:
        raise ConfigError(f"/{command} takes no argument; begin a prompt with // if it is one")
    return command, argument.strip()


def _check(text: str, kind: type, wanted: str) -> None:
    try:
        fits = 0 <= kind(text) < 2**63
    except ValueError:
        fits = False
    if not fits:
        raise ConfigError(f"'{text}': {wanted}")


def help_lines(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the commands with a description of each."""
    return [
        *((f"/{name}", f"{name} answers from now on") for name in names if len(names) > 1),
        ("/reset", "begin a new conversation"),
        ("/temperature T", "0 is greedy, the same answer each time; 0.7 draws by chance"),
        ("/seed N", "draw other answers"),
        ("/quit", "end, as does Ctrl-D; Ctrl-C stops an answer"),
        ("//TEXT", "a prompt that begins with /"),
    ]


class Session:
    """A chat with one of several models at a time, the last one at first."""

    def __init__(
        self, conversations: Sequence[Conversation], sampling: Sampling, screen: ChatScreen
    ) -> None:
        self._all = {each.side.name: each for each in conversations}
        self._active = conversations[-1]
        self._sampling, self._screen = sampling, screen

    def run(self) -> None:
        """Answer until the end of the input or /quit."""
        while (typed := self._read()) is not None:
            try:
                if not self._obey(typed):
                    return
            except HearthError as error:
                self._screen.say("\n".join(error.findings), style="red")

    def _read(self) -> str | None:
        """Return the next line, None at the end of the input."""
        if not sys.stdin.isatty():
            typed = sys.stdin.readline()
            if typed.strip():
                self._screen.say(_PROMPT + typed.rstrip("\n"), style="bold")
            return typed or None
        try:
            return input(_PROMPT)
        except EOFError:
            self._screen.say("")
            return None
        except KeyboardInterrupt:
            self._screen.say("\nCtrl-D or /quit ends")
            return ""

    def _obey(self, typed: str) -> bool:
        """Answer a prompt or carry out a command; return whether to go on."""
        command, argument = parse_line(typed, list(self._all))
        match command:
            case "quit" | "exit":
                return False
            case "":
                if argument:
                    self._ask(argument)
            case "help":
                self._screen.pairs(help_lines(list(self._all)))
            case "reset":
                for conversation in self._all.values():
                    conversation.reset()
                self._screen.say("a new conversation")
            case "temperature" | "seed":
                value = float(argument) if command == "temperature" else int(argument)
                self._sampling = replace(self._sampling, **{command: value})
                self._screen.say(describe_sampling(self._sampling))
            case _:
                self._active = self._all[command]
                self._screen.say(f"{command} will answer")
        return True

    def _ask(self, prompt: str) -> None:
        """Show the answer to `prompt`; Ctrl-C ends it."""
        try:
            with _interruptible() as interrupted:
                self._screen.show(
                    lambda add: self._active.ask(prompt, self._sampling, add, interrupted)
                )
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            release(self._active.side.network.device)
            raise ModelError(
                "there is too little memory for this answer; /reset begins a shorter "
                "conversation, and --4bit leaves more memory"
            ) from None


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Give a function that returns whether Ctrl-C was pressed, which raises no exception meanwhile.

    One that comes where a library has just taken a lock would leave it locked for ever.
    """
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def describe_sampling(sampling: Sampling) -> str:
    """Describe the choice of tokens to a person."""
    if sampling.temperature == 0:
        return "greedy: the same answer each time"
    return f"temperature {sampling.temperature:g}, seed {sampling.seed}"


def chat(
    run: Run,
    sides: Sequence[Side],
    sampling: Sampling,
    screen: ChatScreen,
    system: str,
    complete: bool,
) -> None:
    """Let a person talk to `sides` at the terminal, in the characters that it has.

    With `complete` each line is a text to go on with, without chat template and history.
    """
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(errors="replace")
    # A model that learned from token shards alone has never seen a conversation.
    complete = complete or bool(run.token_shards)
    also = "".join(f"; /{side.name} lets {side.name} answer" for side in sides[:-1])
    head = f"{sides[-1].name} of {run.name}; {describe_sampling(sampling)}{also}; /help"
    screen.say(head, style="bold")
    if complete:
        screen.say("each line is a text to go on with, without chat template and history")
    elif speaks_plainly(sides[-1].tokenizer):
        screen.say("this model has no chat template, and learned from `User: …` `Assistant: …`")
    conversations = [Conversation(side, system, complete) for side in sides]
    Session(conversations, sampling, screen).run()
