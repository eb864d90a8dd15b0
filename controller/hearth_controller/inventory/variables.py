"""Validation of an inventory's variables against the options of the roles and of the verbs.

An inventory may hold its owner's own variables. A variable that only looks like an option of Hearth
is a mistake: its name is similar to an option's, or starts with the prefix of a role or verb.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, TemplateSyntaxError
from jinja2.meta import find_undeclared_variables

from hearth.base.places import NOTIFY, OF_A_LAUNCH, OF_HEARTH, TOKENS
from hearth_controller.base.options import read_yaml
from hearth_controller.inventory.values import misfit
from hearth_controller.supply import extra

_PRICE = "electricity_price"


def impossible_price(value: Any) -> list[str]:
    """Return a finding if a number is no price; 0 is one that is not known."""
    if 0 <= float(value) < math.inf:
        return []
    return [f"{value} is no price; 0 or more is wanted"]


_NOTIFY = "hearth_notify"

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9]*://\S")


def malformed_notify(value: Any) -> list[str]:
    """Return errors in the value of the option: a text or a list of texts is wanted.

    Whether apprise can use an address is found on the nodes, which send to it.
    """
    given = value if isinstance(value, list) else [value]
    if any(not isinstance(each, str) for each in given):
        return ["its value, which is not shown, is no address and no list of addresses"]
    addresses = " ".join(given).split()
    bad = [number for number, each in enumerate(addresses, 1) if not _ADDRESS.match(each)]
    if not bad:
        return []
    which = f"address {', '.join(map(str, bad))} of {len(addresses)}, not shown here, has"
    return [
        f"{which} no scheme, such as ntfy:// (docs/runs.md); a blank within an address is "
        "written %20"
    ]


_ENVIRONMENT = "hearth_environment"

_CURES = {
    **dict.fromkeys(
        (*OF_A_LAUNCH, "PYTHONPATH", "PYTHONSAFEPATH", "PYTHONUNBUFFERED", "HF_HUB_OFFLINE"),
        "Hearth sets it itself; leave it out",
    ),
    **dict.fromkeys(
        [name for name in OF_A_LAUNCH if "_SOCKET_" in name],
        "it follows from cluster_address; leave it out",
    ),
    **dict.fromkeys(
        TOKENS, "a token does not belong in the inventory; export it in the shell that you type in"
    ),
    NOTIFY: "set hearth_notify instead, or export it in the shell that you type in",
    "OMP_NUM_THREADS": "set hearth_threads instead",
    "NCCL_TIMEOUT": (
        "neither NCCL nor PyTorch reads it; type -e collective_timeout=SECONDS when you train (a "
        "lost packet of InfiniBand or RoCE is NCCL_IB_TIMEOUT)"
    ),
}


def misplaced(variables: Mapping[Any, Any]) -> list[str]:
    """Return errors in the variables of a node, without the values, which may be secrets."""
    findings = []
    for name, value in variables.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)):
            findings.append(f"{name!r} is no name of an environment variable")
        elif name in _CURES or name.startswith(OF_HEARTH):
            findings.append(f"{name}: {_CURES.get(name, 'Hearth sets it itself; leave it out')}")
        elif isinstance(value, bool) or not isinstance(value, str | int | float):
            findings.append(f"{name}: a text or a number is wanted; put quotes around the value")
        elif re.search(r"[\x00-\x1f\x7f]", str(value)):
            findings.append(f"{name}: its value has a control character; leave that out")
    return findings


SPECS = "meta/argument_specs.yml"
"""Where a role, or the folder of playbooks, declares its options."""

OF_INVENTORY = "inventory"
"""Entry of the folder of playbooks with the options that an inventory may set."""

# Similarity from which a name counts as mistyped. (Ansible's own names differ little.)
_ALIKE, _ALIKE_ANSIBLE = 0.85, 0.95

CLOSER: Mapping[str, Callable[[Any], list[str]]] = {
    _ENVIRONMENT: misplaced,
    _NOTIFY: malformed_notify,
    _PRICE: impossible_price,
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
    entries = read_yaml(specs.read_text(encoding="utf-8"))["argument_specs"]
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
