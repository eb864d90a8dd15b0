"""The things that a person wants done with a finished run. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

from hearth.base.errors import ConfigError
from hearth.base.text import switch
from hearth.config import Settings
from hearth.config.conflicts import conflicts_of

Again = Callable[["ResultRequest"], str]
"""Returns the command that does a request."""


@dataclass(frozen=True)
class ResultRequest:
    """The request about a finished run; see the settings of these names.

    With `best` the weights with the lowest held-out loss count, not the last ones.
    """

    eval: tuple[str, ...] = ()
    eval_limit: int | None = None
    copy_to: str = ""
    push: str = ""
    private: bool = True
    best: bool = False

    @classmethod
    def from_settings(cls, settings: Settings) -> ResultRequest:
        """Return the request in the settings of a run."""
        return cls(
            settings.eval,
            settings.eval_limit,
            settings.copy_to or "",
            settings.push or "",
            settings.private,
        )

    @classmethod
    def typed(cls, best: str | bool = False, **words: str | bool | int | None) -> ResultRequest:
        """Return the request in typed words, held to the same rules as the settings of a run.

        Raises `ConfigError` with all that is wrong with them.
        """
        from pydantic import ValidationError

        from hearth.config.problems import describe

        given = {name: value for name, value in words.items() if value not in ("", None)}
        try:
            settings = Settings(model="any", **given)
            request = cls.from_settings(settings)
        except ValidationError as error:
            raise ConfigError(*describe(error, None, Settings.model_fields)) from error
        findings = conflicts_of(settings)
        try:
            best = switch(best)
        except ValueError as error:
            findings.append(f"best: {best!r} cannot be used; {error}")
        if findings:
            raise ConfigError(*findings)
        return replace(request, best=best)

    @property
    def parts(self) -> list[ResultRequest]:
        """The same request in parts that can fail one by one: scores, copy, push."""
        nothing = ResultRequest(private=self.private, best=self.best)
        parts = [
            replace(nothing, eval=self.eval, eval_limit=self.eval_limit),
            replace(nothing, copy_to=self.copy_to),
            replace(nothing, push=self.push),
        ]
        return [part for part in parts if part.eval or part.copy_to or part.push]

    @property
    def kind(self) -> str:
        """The setting that asks for the first part: `eval`, `copy_to` or `push`."""
        return "eval" if self.eval else "copy_to" if self.copy_to else "push"

    @property
    def words(self) -> dict[str, str]:
        """The settings that ask for it, without those that have their default."""
        words = {
            "eval": ",".join(self.eval),
            "eval_limit": str(self.eval_limit or ""),
            "copy_to": self.copy_to,
            "push": self.push,
            "private": "off" if self.push and not self.private else "",
            "best": "on" if self.best else "",
        }
        return {name: text for name, text in words.items() if text}


def by_command(hearth: str, run: str) -> Again:
    """Return a function that names the command for a request on `run`.

    `hearth` is the command for the run's inventory.
    """

    def again(request: ResultRequest) -> str:
        verb = "eval" if request.eval else "share"
        flags = (
            f"--{name.replace('_', '-')} {shlex.quote(text)}"
            for name, text in request.words.items()
        )
        return f"{hearth} {verb} --run {run} {' '.join(flags)}"

    return again


def by_hand(folder: str) -> Again:
    """Return a function that names the script for a request on the run in `folder`."""

    def again(request: ResultRequest) -> str:
        script = "evaluate" if request.eval else "share"
        parts = ["python", f"training/{script}.py", shlex.quote(folder)]
        for name, text in request.words.items():
            match name:
                case "eval":
                    parts.append(shlex.quote(text))
                case "eval_limit":
                    parts += ["--limit", text]
                case "best":
                    parts.append("--best")
                case _:
                    parts += [f"--{name.replace('_', '-')}", shlex.quote(text)]
        return " ".join(parts)

    return again
