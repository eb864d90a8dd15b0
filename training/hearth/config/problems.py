"""Turn pydantic's and YAML's errors into sentences that name the setting and the solution."""

from __future__ import annotations

from collections.abc import Iterable

import yaml
from pydantic import ValidationError

from hearth.base.errors import did_you_mean

_WANTED = {
    "int_parsing": "a whole number is wanted",
    "int_type": "a whole number is wanted",
    "int_from_float": "a whole number is wanted",
    "float_parsing": "a number is wanted",
    "float_type": "a number is wanted",
    "bool_parsing": "true or false is wanted",
    "bool_type": "true or false is wanted",
    "finite_number": "a finite number is wanted",
    "string_type": "text is wanted",
    "tuple_type": "a list is wanted, such as 4:2:1",
}


def _sentence(kind: str, context: dict[str, object], message: str) -> str:
    """Describe the expected value, for one of pydantic's error kinds."""
    if kind in _WANTED:
        return _WANTED[kind]
    if kind in ("greater_than_equal", "greater_than"):
        bound = context.get("ge", context.get("gt"))
        return f"it must be {'at least' if kind.endswith('equal') else 'more than'} {bound}"
    if kind in ("less_than_equal", "less_than"):
        bound = context.get("le", context.get("lt"))
        return f"it must be {'at most' if kind.endswith('equal') else 'less than'} {bound}"
    if kind == "literal_error":
        several = " or " in str(context["expected"])
        return f"choose {'one of ' * several}{context['expected']}"
    return message.removeprefix("Value error, ")


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
    wanted: dict[str, list[str]] = {}
    for problem in error.errors():
        name = str(problem["loc"][0]) if problem["loc"] else "the file"
        if problem["type"] == "extra_forbidden":
            findings.append(f"{prefix}there is no setting '{name}'{did_you_mean(name, known)}")
        elif problem["type"] == "missing":
            findings.append(f"{prefix}{name} is required and not set")
        else:
            wrong = f"{prefix}{name}: {problem['input']!r} cannot be used"
            sentence = _sentence(problem["type"], problem.get("ctx", {}), problem["msg"])
            wanted.setdefault(name, [wrong]).append(sentence)
    for wrong, *sentences in wanted.values():
        findings.append(f"{wrong}; {', or '.join(dict.fromkeys(sentences))}")
    return findings
