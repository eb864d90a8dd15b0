"""The things that a person wants done with a finished run. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from hearth.base.errors import ConfigError
from hearth.base.text import switch
from hearth.config import Settings

Again = Callable[["Request"], str]
"""Returns the command that does a request."""


@dataclass(frozen=True)
class Request:
    """The request about a finished run; see the settings of these names.

    `tasks` are `eval`, `limit` is `eval_limit`. With `best` the weights with the lowest held-out
    loss count, not the last ones.
    """

    tasks: tuple[str, ...] = ()
    limit: int | None = None
    copy_to: str = ""
    push: str = ""
    private: bool = True
    best: bool = False

    @classmethod
    def from_settings(cls, settings: Settings) -> Request:
        """Return the request in the settings of a run."""
        return cls(
            settings.eval,
            settings.eval_limit,
            settings.copy_to or "",
            settings.push or "",
            settings.private,
        )

    @classmethod
    def typed(
        cls,
        tasks: str = "",
        limit: str | int | None = None,
        copy_to: str = "",
        push: str = "",
        private: str | bool = True,
        best: str | bool = False,
    ) -> Request:
        """Return the request in typed words, held to the same rules as the settings of a run.

        Raises `ConfigError` with all that is wrong with them.
        """
        from pydantic import ValidationError

        from hearth.config.problems import describe

        given = {"eval": tasks, "eval_limit": limit, "copy_to": copy_to, "push": push}
        try:
            settings = Settings(
                model="any",
                private=private,
                **{name: value for name, value in given.items() if value not in ("", None)},
            )
            request = cls.from_settings(settings)
        except ValidationError as error:
            raise ConfigError(*describe(error, None, Settings.model_fields)) from error
        findings = settings.contradictions()
        try:
            best = switch(best)
        except ValueError as error:
            findings.append(f"best: {best!r} cannot be used; {error}")
        if findings:
            raise ConfigError(*findings)
        return cls(**vars(request) | {"best": best})

    @property
    def anything(self) -> bool:
        """Whether anything is wanted."""
        return bool(self.tasks or self.copy_to or self.push)

    @property
    def parts(self) -> list[Request]:
        """The same request in parts that can fail one by one: scores, copy, push."""
        only = {"private": self.private, "best": self.best}
        parts = [
            Request(tasks=self.tasks, limit=self.limit, **only),
            Request(copy_to=self.copy_to, **only),
            Request(push=self.push, **only),
        ]
        return [part for part in parts if part.anything]

    @property
    def kind(self) -> str:
        """The setting that asks for the first part: `eval`, `copy_to` or `push`."""
        return "eval" if self.tasks else "copy_to" if self.copy_to else "push"

    @property
    def words(self) -> dict[str, str]:
        """The settings that ask for it, without those that have their default."""
        words = {
            "eval": ",".join(self.tasks),
            "eval_limit": str(self.limit or ""),
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

    def again(request: Request) -> str:
        verb = "eval" if request.tasks else "share"
        flags = (
            f"--{name.replace('_', '-')} {shlex.quote(text)}"
            for name, text in request.words.items()
        )
        return f"{hearth} {verb} --run {run} {' '.join(flags)}"

    return again


def by_hand(folder: str) -> Again:
    """Return a function that names the script for a request on the run in `folder`."""

    def again(request: Request) -> str:
        script = "evaluate" if request.tasks else "share"
        parts = ["python", f"training/{script}.py", shlex.quote(folder)]
        for name, text in request.words.items():
            match name:
                case "eval":
                    parts.append(shlex.quote(text))
                case "eval_limit":
                    parts += ["--limit", text]
                case "private":
                    parts += ["--private", text]
                case "best":
                    parts.append("--best")
                case _:
                    parts += [f"--{name.replace('_', '-')}", shlex.quote(text)]
        return " ".join(parts)

    return again
