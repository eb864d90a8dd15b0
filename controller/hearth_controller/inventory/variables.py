"""Validation of an inventory's variables against the options of the roles and of the verbs.

An inventory may hold its owner's own variables. A variable that only looks like an option of Hearth
is a mistake: its name is similar to an option's, or starts with the prefix of a role or verb.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, TemplateSyntaxError
from jinja2.meta import find_undeclared_variables

from hearth_controller.inventory import environment, notify, price
from hearth_controller.inventory.renamed import GONE, RENAMED, hint
from hearth_controller.inventory.values import misfit
from hearth_controller.supply import extra

SPECS = "meta/argument_specs.yml"
"""Where a role, or the folder of playbooks, declares its options."""

OF_INVENTORY = "inventory"
"""Entry of the folder of playbooks with the options that an inventory may set."""

# Similarity from which a name counts as mistyped. (Ansible's own names differ little.)
_ALIKE, _ALIKE_ANSIBLE = 0.85, 0.95

CLOSER: Mapping[str, Callable[[Any], list[str]]] = {
    environment.OPTION: environment.misplaced,
    notify.OPTION: notify.malformed,
    price.OPTION: price.impossible,
    extra.OPTION: extra.malformed,
}
"""Options whose values are looked at more closely, wherever they were set."""

_EXAMPLE_LOGIN = ("ansible_user", "you")


@dataclass(frozen=True)
class Given:
    """A variable of one host.

    `where` is the file and line that set it, `-e`, or '' if unknown; `typed` is true if it came
    after `-e`, where every value is text.
    """

    value: Any
    where: str = ""
    typed: bool = False


def role_options(folders: Iterable[str | Path]) -> dict[str, dict[str, Any]]:
    """Return the specifications of all options declared by the roles in `folders`."""
    options: dict[str, dict[str, Any]] = {}
    for folder in folders:
        for path in sorted(Path(folder).glob(f"*/{SPECS}")):
            for of_entry in entry_options(path).values():
                options |= of_entry
    return options


def verb_options(playbooks: str | Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the specifications of the words of each playbook in a folder, by playbook.

    The entry `OF_INVENTORY` has the options that an inventory may set for them.
    """
    return entry_options(Path(playbooks) / SPECS)


def entry_options(specs: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the options in a file of argument specs, by entry."""
    entries = yaml.safe_load(specs.read_text(encoding="utf-8"))["argument_specs"]
    return {name: entry.get("options", {}) for name, entry in entries.items()}


def check(
    hosts: Mapping[str, Mapping[str, Given]],
    options: Mapping[str, Mapping[str, Any]],
    owners: Mapping[str, str],
    ansible: Iterable[str],
) -> list[str]:
    """Return errors in the variables of all hosts, one sentence each.

    `owners` describes whose options begin with a prefix, such as `{"network": "the role network"}`;
    `ansible` are Ansible's own connection variables.
    """
    ansible = list(ansible)
    hosts_by_finding: dict[tuple[str, str, str], list[str]] = {}
    for host, variables in hosts.items():
        for name, given in variables.items():
            if name in options:
                reasons = [misfit(given.value, options[name], given.typed)]
                if name in CLOSER and reasons == [""]:
                    reasons = CLOSER[name](given.value)
            elif (name, given.value) == _EXAMPLE_LOGIN:
                reasons = ["'you' is the example's; set the login that you have on the machines"]
            else:
                reasons = [stray(name, options, owners, ansible)]
            for reason in filter(None, reasons):
                hosts_by_finding.setdefault((name, given.where, reason), []).append(host)
    findings = []
    for (name, where, reason), names in hosts_by_finding.items():
        whose = "" if len(names) == len(hosts) and where else f"{', '.join(names)}: "
        findings.append(f"{whose}{name}{f' ({where})' if where else ''}: {reason}")
    return findings


def template_names(value: Any) -> set[str]:
    """Return the names used by templates in a variable's value, at any depth."""
    if isinstance(value, Mapping):
        return template_names(list(value.values()))
    if isinstance(value, list):
        return set().union(*map(template_names, value))
    if not isinstance(value, str):
        return set()
    try:
        return find_undeclared_variables(Environment(autoescape=True).parse(value))
    except TemplateSyntaxError:
        return set()  # the user of the variable reports it


def stray(
    name: str, options: Iterable[str], owners: Mapping[str, str], ansible: Iterable[str]
) -> str:
    """Return the reason why an unknown variable looks like a mistyped option, or ''."""
    if name.startswith("ansible_"):
        near = difflib.get_close_matches(name, set(ansible) - {name}, n=1, cutoff=_ALIKE_ANSIBLE)
        if not near or name in ansible:
            return ""
        return f"Ansible has no such variable (did you mean '{near[0]}'?)"
    if "_" in name and name in {*RENAMED, *GONE}:
        return f"there is no such option{hint(name, options)}"
    prefix = next((prefix for prefix in owners if name.startswith(f"{prefix}_")), None)
    # Options of one owner share a prefix, so a lower similarity is enough.
    near = difflib.get_close_matches(name, list(options), n=1, cutoff=0.6 if prefix else _ALIKE)
    meant = f" (did you mean '{near[0]}'?)" if near else ""
    if prefix:
        return (
            f"{owners[prefix]} has no such option{meant}; a variable of your own needs a name that "
            f"does not begin with {prefix}_"
        )
    return f"there is no such option{meant}; or give your own variable another name" if near else ""
