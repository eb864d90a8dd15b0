"""The `dataset` setting as a mixture: the share of each of several data sets."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

import yaml
from pydantic import Field

Mixture = Annotated[dict[str, Annotated[float, Field(gt=0)]], Field(min_length=2)]

_FORM = "write shares as a=0.7,b=0.3, or in a file as {a: 0.7, b: 0.3}"


def parse_mixture(value: Any) -> Any:
    """Turn `a=0.7,b=0.3` or `{a: 0.7, b: 0.3}` into shares by name; return a single name as it is.

    Raises `ValueError` with everything that is wrong with a mixture.
    """
    if isinstance(value, str):
        value = _from_text(value)
    if not isinstance(value, dict):
        return value
    findings, shares = [], {}
    for name, share in value.items():
        try:
            shares[str(name)] = math.nan if isinstance(share, bool) else float(share)
        except (TypeError, ValueError):
            shares[str(name)] = math.nan
        if not 0 < shares[str(name)] < math.inf:
            findings.append(f"the share of {name} is {share!r}, and a number above 0 is wanted")
    if len(shares) < 2:
        findings.append("a mixture has two data sets or more; give a single one by its name")
    if findings:
        raise ValueError("; ".join([*findings, _FORM]))
    return shares


def _from_text(text: str) -> Any:
    """Return the mapping that `text` is the form of, or `text` itself if it is a plain name."""
    if text.startswith("{"):
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = None
        if not isinstance(value, dict):
            raise ValueError(
                f"this mapping is not whole (ansible-playbook ends it at a space); {_FORM}"
            )
        return value
    parts = [part.rpartition("=")[::2] for part in re.split(r"\s*,\s*", text)]
    # A file may have these characters in its name, but hardly a number behind each of several.
    if len(parts) < 2 or not all(name and _is_number(share) for name, share in parts):
        return text
    names = [name for name, _ in parts]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is given twice; add its shares up")
    return dict(parts)


def _is_number(text: str) -> bool:
    """Return whether `text` is the form of a number, whatever its sign."""
    try:
        float(text)
    except ValueError:
        return False
    return True
