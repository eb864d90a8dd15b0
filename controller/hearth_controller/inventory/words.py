"""The words of a playbook after `-e`: their values, defaults and errors. Pure.

`playbooks/meta/argument_specs.yml` declares the words of each playbook.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hearth.base.errors import did_you_mean
from hearth.base.text import switch
from hearth.config.problems import RENAMED, elsewhere
from hearth.config.types import secret_in
from hearth_controller.inventory.values import alternatives, misfit, one_of

Specs = Mapping[str, Mapping[str, Any]]
"""Specifications of words or options, by name."""

EVERY_NODE = (["all"], ["auto"])
"""Values of `nodes` that name no node."""

_PLACE_OF_COPIES = "copy_to"
"""A word that may hold no credential: Ansible shows and logs the arguments of tasks."""

_NOT_WORDS = ("ansible_", "_")
"""Prefixes of variables of Ansible's own, and of those that only tests and tools of Hearth set."""


def is_word(name: str) -> bool:
    """Return whether a variable after `-e` has to be a word, an option or an inventory's own."""
    return not name.startswith(_NOT_WORDS)


def parsed(typed: Mapping[str, Any], specs: Specs) -> tuple[dict[str, Any], list[str]]:
    """Return the typed words that a playbook has, as values of their types, and findings."""
    values, findings = {}, []
    for name in specs.keys() & typed.keys():
        value, reason = _value(typed[name], specs[name])
        if name == _PLACE_OF_COPIES and not reason:
            reason = secret_in(value)
        if reason:
            findings.append(f"-e {name}: {reason}")
        else:
            values[name] = value
    return values, sorted(findings)


def complete(values: Mapping[str, Any], specs: Specs) -> tuple[dict[str, Any], list[str]]:
    """Return all words of a playbook, those without a value with their default, and findings.

    Without a default a text is empty, and any other word None. The findings name the words that
    are missing.
    """
    lacking = [
        f"-e {name}= is missing: {_wanted(spec)}"
        for name, spec in specs.items()
        if spec.get("required") and not values.get(name)
    ]
    unset = {name: _unset(spec) for name, spec in specs.items()}
    return unset | dict(values), lacking


def unknown(typed: Iterable[str], words: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return findings on names after `-e` that a playbook does not know.

    `words` are the playbook's own; `others` are options, inventory variables and the names used in
    their templates.
    """
    known = [*words, *others]
    return [
        f"-e {name}: this playbook has no such word or option{hint(name, known)}"
        for name in typed
        if name not in known and is_word(name)
    ]


def hint(name: str, known: Iterable[str]) -> str:
    """Return the present name of an unknown word or option, or the most similar `known` one."""
    if setting := RENAMED.get(name) or elsewhere(name, known):
        return f"; write -e {setting if '=' in setting else f'{setting}='} instead"
    return did_you_mean(name, known)


def strangers(wanted: Sequence[str] | str, names: Sequence[str]) -> list[str]:
    """Return a finding if a node that `-e nodes=` names is not one of `names`.

    `wanted` is a text where one node is wanted, and a list where several may be.
    """
    if isinstance(wanted, str) and "," in wanted:
        return [f"-e nodes: {wanted} are several, and one is wanted"]
    asked = [wanted] if isinstance(wanted, str) else wanted
    missing = [name for name in asked if name and name not in names]
    if not names or not missing:
        return []
    return [
        f"-e nodes: there is no node {missing[0]}{did_you_mean(missing[0], names)}; there are "
        f"{', '.join(names)}"
    ]


def _value(given: Any, spec: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the value of one typed word, or the reason why it has none."""
    kind, choices = spec.get("type", "str"), spec.get("choices")
    if kind == "list" and isinstance(given, str | int | float):
        given = [part.strip() for part in str(given).split(",") if part.strip()]
    if reason := misfit(given, spec, typed=True):
        return None, reason
    match kind:
        case "bool":
            return switch(given), ""
        case "int" if int(given) < 0:
            return None, f"{given!r} cannot be used; 0 or more is wanted"
        case "int":
            return int(given), ""
        case "list":
            return [str(each) for each in given], ""
        case "str" | "path":
            return one_of(given, choices) if choices else str(given), ""
    return given, ""


def _wanted(spec: Mapping[str, Any]) -> str:
    """Return the values that a word may have, or else its description."""
    choices = spec.get("choices")
    return f"{alternatives(choices)} is wanted" if choices else str(spec["description"])


def _unset(spec: Mapping[str, Any]) -> Any:
    """Return the default of a word, or its value without one."""
    return spec.get("default", "" if spec.get("type", "str") in ("str", "path", "raw") else None)
