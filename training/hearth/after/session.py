"""A chat at a terminal, or with prompts from a pipe: read a line, have the models answer, again."""

from __future__ import annotations

import readline  # noqa: F401  Gives input() its editing and history.
import sys
from dataclasses import replace

from hearth.after.answer import Answer, Sampling
from hearth.after.commands import BOTH, ENDS, help_lines, parse_line
from hearth.after.conversation import Conversation
from hearth.after.screen import Screen
from hearth.base.errors import ConfigError, HearthError, ModelError
from hearth.ranks.memory import is_out_of_memory, release

_PROMPT = "> "


class Session:
    """A chat with `conversations`, one for each side."""

    def __init__(
        self, conversations: list[Conversation], sampling: Sampling, screen: Screen
    ) -> None:
        self._all = {each.side.name: each for each in conversations}
        self._active = list(self._all)
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
        line = parse_line(typed, list(self._all))
        if line.command in ENDS:
            return False
        if not line.command:
            if line.argument:
                self._ask(line.argument, self._active)
        elif line.command == "help":
            self._screen.pairs(help_lines(list(self._all)))
        elif line.command == "reset":
            for conversation in self._all.values():
                conversation.reset()
            self._screen.say("a new conversation")
        elif line.command in ("temperature", "seed"):
            kind = float if line.command == "temperature" else int
            self._sampling = replace(self._sampling, **{line.command: kind(line.argument)})
            self._screen.say(described(self._sampling))
        elif line.argument:
            self._ask(line.argument, [line.command])
        else:
            self._choose(line.command)
        return True

    def _choose(self, command: str) -> None:
        """Have one side answer from now on, or both."""
        if command == BOTH and len(self._all) == 1:
            raise ConfigError(f"/{BOTH}: {', '.join(self._all)} is all that there is to talk to")
        self._active = list(self._all) if command == BOTH else [command]
        self._screen.say(f"{' and '.join(self._active)} will answer")

    def _ask(self, prompt: str, names: list[str]) -> None:
        """Have the sides `names` answer `prompt`, and keep their answers."""
        asked: list[tuple[Conversation, Answer]] = []
        try:
            for name in names:
                asked.append((self._all[name], self._all[name].ask(prompt, self._sampling)))
            self._screen.show([answer for _, answer in asked])
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            release(self._all[names[0]].side.network.device)
            raise ModelError(
                "there is too little memory for this answer; /reset begins a shorter "
                "conversation, and --4bit leaves more memory"
            ) from None
        finally:
            for conversation, answer in asked:
                answer.close()
                conversation.keep(prompt, answer)


def described(sampling: Sampling) -> str:
    """Describe the choice of tokens to a person."""
    if sampling.temperature == 0:
        return "greedy: the same answer each time"
    return f"temperature {sampling.temperature:g}, seed {sampling.seed}"
