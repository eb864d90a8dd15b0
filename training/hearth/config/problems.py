"""Turn pydantic's and YAML's errors into sentences that name the setting and the solution."""

from __future__ import annotations

from collections.abc import Iterable

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from hearth.base.addresses import hidden, without_credentials
from hearth.base.text import cut
from hearth.config.renamed import hint

_SECRET = "secret_value"


def secret_value(reason: str) -> PydanticCustomError:
    """Return the error of a validator for a value that may be a secret: `describe` hides it."""
    return PydanticCustomError(_SECRET, "{reason}", {"reason": reason})


def describe(
    error: ValidationError | yaml.YAMLError, where: str | None, known: Iterable[str] = ()
) -> list[str]:
    """Return one sentence per problem.

    `where` names the file (None: only the setting is named) and `known` the setting names that an
    unknown one is compared with.
    """
    prefix = f"{where}: " if where else ""
    if isinstance(error, yaml.YAMLError):
        return [f"{prefix}this is not YAML: {error}"]
    findings = []
    # pydantic reports a value of a union, such as a number or a word, once for each alternative.
    reasons: dict[str, list[str]] = {}
    for problem in error.errors():
        name = str(problem["loc"][0]) if problem["loc"] else "the file"
        if problem["type"] == "extra_forbidden":
            findings.append(f"{prefix}there is no setting '{name}'{hint(name, known)}")
        elif problem["type"] == "missing":
            findings.append(f"{prefix}{'.'.join(map(str, problem['loc']))} is required and not set")
        else:
            value = _shown(problem)
            wrong = f"{prefix}{name}: {value} cannot be used"
            reason = (
                problem["msg"].removeprefix("Value error, ").replace("Input should", "it should")
            )
            reasons.setdefault(name, [wrong]).append(reason)
    for wrong, *several in reasons.values():
        findings.append(f"{wrong}; {', or '.join(dict.fromkeys(several))}")
    return findings


def _shown(problem: ErrorDetails) -> str:
    """Return the value of a problem as it may be shown."""
    if problem["type"] == _SECRET:
        return cut(repr(hidden(str(problem["input"]))))
    return cut(without_credentials(repr(problem["input"])))
