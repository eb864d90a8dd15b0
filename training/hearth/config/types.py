"""Types of settings, and the parsers of those that are typed in a form of their own.

On a command line a list is `4:2:1` or `q_proj,v_proj`, a mixture `a=0.7,b=0.3`, and columns are
`question=frage,answer=antwort`; a file may hold a YAML list or mapping instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BeforeValidator, Field

from hearth.base.addresses import credential_in, is_address
from hearth.base.errors import did_you_mean
from hearth.base.text import cut, switch
from hearth.data.columns import NAMES

_SHARES_FORM = "write shares as a=0.7,b=0.3, or in a file as {a: 0.7, b: 0.3}"
_COLUMNS_FORM = (
    "write question=frage,answer=antwort, or in a file {question: frage, answer: antwort}"
)


def parse_mixture(value: Any) -> Any:
    """Turn `a=0.7,b=0.3` or `{a: 0.7, b: 0.3}` into shares by name; return a single name as it is.

    Raises `ValueError` with everything that is wrong with a mixture.
    """
    if isinstance(value, str):
        value = _yaml_mapping(value, _SHARES_FORM) if value.startswith("{") else _shares(value)
    if not isinstance(value, dict):
        return value
    findings, shares = [], {}
    for name, share in value.items():
        number = None if isinstance(share, bool) else _number(share)
        if number is None or not 0 < number < math.inf:
            findings.append(f"the share of {name} is {share!r}, and a number above 0 is wanted")
        shares[str(name)] = number
    if len(shares) < 2:
        findings.append("a mixture has two data sets or more; give a single one by its name")
    if findings:
        raise ValueError("; ".join([*findings, _SHARES_FORM]))
    return shares


def _shares(text: str) -> Any:
    """Return the typed shares by name, or `text` itself if it is a plain name."""
    parts = [part.rpartition("=")[::2] for part in re.split(r"\s*,\s*", text)]
    # A file may have these characters in its name, but hardly a number behind each of several.
    if len(parts) < 2 or not all(name and _number(share) is not None for name, share in parts):
        return text
    names = [name for name, _ in parts]
    if twice := _repeated(names):
        raise ValueError(f"{', '.join(twice)} is given twice; add its shares up")
    return dict(parts)


def _number(value: Any) -> float | None:
    """Return `value` as a float; None if it is not the form of a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def parse_columns(value: Any) -> Any:
    """Turn `question=frage,answer=antwort` or a mapping into the data's name of each column.

    Raises `ValueError` with everything that is wrong with it.
    """
    if isinstance(value, str):
        value = _column_names(value.strip())
    if not isinstance(value, dict):
        return value
    findings, names, owns = [], list(map(str, value)), list(map(str, value.values()))
    for name, own in zip(names, owns, strict=True):
        if name not in NAMES:
            findings.append(
                f"Hearth reads no column '{name}'{did_you_mean(name, NAMES)}; it reads "
                f"{', '.join(NAMES)}"
            )
        if not own or owns.count(own) > 1:
            findings.append(f"'{own}' is given for {name}, and each needs a column of its own")
    if findings:
        raise ValueError("; ".join([*findings, _COLUMNS_FORM]))
    return dict(zip(names, owns, strict=True))


def _column_names(text: str) -> dict[str, str]:
    """Return the typed name of each column."""
    if text.lower() in _NO_VALUE:
        return {}
    if text.startswith("{"):
        return _yaml_mapping(text, _COLUMNS_FORM)
    parts = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and equals for name, equals, _ in parts):
        raise ValueError(f"{cut(repr(text))} is no list of names; {_COLUMNS_FORM}")
    if twice := _repeated([name.strip() for name, _, _ in parts]):
        raise ValueError(f"{', '.join(twice)} is given twice; {_COLUMNS_FORM}")
    return {name.strip(): own.strip() for name, _, own in parts}


def _yaml_mapping(text: str, form: str) -> dict[Any, Any]:
    """Return the mapping in `text`. Raises `ValueError` with the right `form` if it is none."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"this mapping is not whole (ansible-playbook ends it at a space); {form}")
    return value


def _repeated(names: list[str]) -> list[str]:
    """Return the names that are listed more than once."""
    return sorted({name for name in names if names.count(name) > 1})


def secret_in(place: str) -> str:
    """Return why `copy_to` may hold a secret, and what to do instead; '' if it holds none."""
    if _is_folder(place) or not (reason := credential_in(place)):
        return ""
    return (
        f"it may hold a password or key ({reason}), and settings are recorded with the run; leave "
        "that out, and keep it on the node: as an SSH key, in a file of ~/.config/fsspec, or as a "
        "variable of hearth_environment"
    )


def is_anywhere(place: str) -> bool:
    """Return whether a place means the same wherever it is typed: settings go to other machines."""
    return _is_folder(place) or is_address(place)


def _is_folder(place: str) -> bool:
    return place.startswith(("/", "~/")) and not is_address(place)


def _listed_unless(*words: str) -> Callable[[Any], Any]:
    """Return a validator that splits `4:2:1` or `q_proj,v_proj` into a list, except for `words`."""

    def listed(value: Any) -> Any:
        if isinstance(value, str) and value not in words:
            return [part.strip() for part in re.split(r"[:,]", value) if part.strip()]
        return value

    return listed


_NO_VALUE = ("", "none", "null")


def _none(value: Any) -> Any:
    """Return None for the words that mean None on a command line."""
    return None if isinstance(value, str) and value.lower() in _NO_VALUE else value


REPOSITORY = re.compile(
    r"(?=.{3,96}$)(?!.*(--|\.\.))[A-Za-z0-9](?:[\w.-]*\w)?/\w(?:[\w.-]*\w)?(?<!\.git)", re.ASCII
)
"""Names of repositories on the Hub, with their owner."""

Switch = Annotated[bool, BeforeValidator(switch, json_schema_input_type=bool)]
MOST = (1 << 63) - 1
"""The largest whole number that torch and NumPy take."""
Count = Annotated[int, Field(ge=1, le=MOST)]
Auto = Literal["auto"]
_None = Literal["none", "null", ""] | None
OptionalCount = Annotated[
    Count | None, BeforeValidator(_none, json_schema_input_type=Count | _None)
]
_Threads = Annotated[int, Field(ge=1, le=65_536)]
OptionalThreads = Annotated[
    _Threads | None, BeforeValidator(_none, json_schema_input_type=_Threads | _None)
]
Fraction = Annotated[float, Field(ge=0, lt=1)]
OptionalFraction = Annotated[
    Fraction | None, BeforeValidator(_none, json_schema_input_type=Fraction | _None)
]
Size = Annotated[float, Field(gt=0)]
OptionalSize = Annotated[Size | None, BeforeValidator(_none, json_schema_input_type=Size | _None)]
OptionalText = Annotated[str | None, BeforeValidator(_none)]
Mixture = Annotated[dict[str, Size], Field(min_length=2)]
DataSet = Annotated[Annotated[str, Field(min_length=1)] | Mixture, BeforeValidator(parse_mixture)]
_ColumnNames = dict[str, Annotated[str, Field(min_length=1)]]
Columns = Annotated[
    _ColumnNames, BeforeValidator(parse_columns, json_schema_input_type=_ColumnNames | str | None)
]
Shares = tuple[Annotated[int, Field(ge=0, le=MOST)], ...]
Split = Annotated[
    Shares | Literal["auto", "equal"],
    BeforeValidator(
        _listed_unless("auto", "equal"),
        json_schema_input_type=Shares
        | Literal["auto", "equal"]
        | Annotated[str, Field(pattern=r"^\s*\d+\s*([:,]\s*\d+\s*)*$")],
    ),
]
Tasks = Annotated[
    tuple[str, ...],
    BeforeValidator(_listed_unless(), json_schema_input_type=tuple[str, ...] | str),
]
Targets = Annotated[
    tuple[str, ...] | Literal["all-linear"],
    BeforeValidator(_listed_unless("all-linear"), json_schema_input_type=tuple[str, ...] | str),
]


def takes_switch(annotation: Any) -> bool:
    """Return whether a setting with this type may be on or off."""
    return annotation is bool or Switch in get_args(annotation)
