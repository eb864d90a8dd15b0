"""Action plugin: read the nodes from the inventory and report everything wrong with them.

Works on the controller alone; no machine is contacted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible._internal._datatag._tags import Origin
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.splitter import parse_kv
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars
from ansible.vars.plugins import get_vars_from_inventory_sources

from hearth.base.text import cut
from hearth_controller.base.options import argument_spec
from hearth_controller.base.paths import FOLDER, as_typed, hearth_command
from hearth_controller.cli.paths import Paths
from hearth_controller.cli.place import REPOSITORY, inventory_of
from hearth_controller.inventory.nodes import far_apart, on_one_computer, read_nodes, unreadable
from hearth_controller.inventory.variables import (
    CLOSER,
    OF_INVENTORY,
    Given,
    check,
    role_options,
    template_names,
    verb_options,
)
from hearth_controller.inventory.words import complete, parsed, strangers, unknown

DOCUMENTATION = r"""
module: hearth_inventory
short_description: Nodes in rank order, and the errors of the inventory
description:
  - Rank is the position in the group C(cluster), unless a host sets C(node_rank).
  - Variables that look like an option and are none, and options with values that cannot be theirs,
    are found too.
  - What is wrong comes back as RV(findings) and does not fail the task (see M(hearth_verdict)).
options:
  runs:
    description: Folder of the controller that holds a folder a run.
    type: path
    required: true
  verb:
    description:
      - Playbook whose words may stand after C(-e); what else stands there must be an option, a
        variable of the inventory or what one is made of. They come back as RV(words).
      - Without it the words are left to M(hearth_run).
    type: str
    default: ""
  strict:
    description: Whether unknown words are findings; off after another playbook has looked at them.
    type: bool
    default: true
  whole:
    description: Whether all nodes are wanted, so that C(--limit) is refused.
    type: bool
    default: false
"""


def variables_of(inventory: Any, loader: DataLoader) -> set[str]:
    """Return the names of all variables that the inventory sets, for any host or group.

    Variables that a role registered or set are not included.
    """
    parts = [*inventory.get_hosts(), *inventory.groups.values()]
    names = {name for part in parts for name in part.get_vars()}
    # pylint: disable-next=protected-access
    sources = inventory._sources
    return names | set(get_vars_from_inventory_sources(loader, sources, parts, "all"))


def where(name: str, value: Any) -> str:
    """Return the file and line that a variable was read from, as a typed path, or ''."""
    origin, of_value = Origin.get_tag(name), Origin.get_tag(value)
    # A name keeps its first place, such as that of a default, when another file overrides it.
    if origin is None or (of_value and of_value.path != origin.path):
        origin = of_value
    if origin is None or not origin.path:
        return ""
    path = as_typed(origin.path)
    return f"{path}:{origin.line_num}" if origin.line_num else path


def stray_words(options: Iterable[str]) -> list[str]:
    """Return a finding for each `-e` that Ansible cuts at a blank and so takes for less."""
    return [
        f"-e '{cut(option)}': {cut(rest)!r} stands apart, with no name before it; quote a value "
        "with blanks: -e 'name=\"a b\"'"
        for option in map(str, options)
        # The options of a script contain blanks.
        if not option.startswith(("@", "{", "[", "script_args="))
        and (rest := parse_kv(option).get("_raw_params"))
    ]


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the nodes in rank order, and findings.

        Also returned: `runs`; `words`, the words of the playbook with their values; `hearth`, the
        command for the same inventory; `known`, the names of all options,
        inventory variables and those that templates ask for; `one_computer`, whether the nodes
        share one; `remark` on something unusual, or ''.
        """
        result = super().run(tmp, task_vars) | {"changed": False}
        _, arguments = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        hostvars = task_vars["hostvars"]
        names = task_vars["groups"].get("cluster", [])
        nodes, findings = read_nodes({name: hostvars[name] for name in names})
        # pylint: disable-next=protected-access
        broken = unreadable(hostvars._inventory._sources)
        findings = broken + (findings if names or not broken else [])
        folders = constants.DEFAULT_ROLES_PATH
        roles = sorted(role.name for folder in folders for role in Path(folder).glob("*"))
        verbs = verb_options(task_vars["playbook_dir"])
        of_inventory = verbs.pop(OF_INVENTORY)
        options = role_options(folders) | of_inventory
        set_here = variables_of(hostvars._inventory, self._loader)
        typed = json.loads(json.dumps(load_extra_vars(self._loader), default=str))
        untyped = set_here - typed.keys()
        wanted = untyped | (typed.keys() & options.keys()) | of_inventory.keys() | CLOSER.keys()
        findings += check(
            {name: self._given(hostvars, name, wanted, untyped, options) for name in names},
            options,
            {option.partition("_")[0]: "Hearth" for option in of_inventory}
            | {role: f"the role {role}" for role in roles},
            {word for words in constants.MAGIC_VARIABLE_MAPPING.values() for word in words},
        )
        raw = (item for name in names for item in hostvars.raw_get(name).items())
        used = template_names([value for variable, value in raw if variable in set_here])
        known = set_here | options.keys() | used
        findings += stray_words(context.CLIARGS.get("extra_vars", ()))
        words: dict[str, Any] = {}
        if verb := arguments["verb"]:
            values, faults = parsed(typed, verbs[verb])
            words, lacking = complete(values, verbs[verb])
            findings += faults + lacking + strangers(words.get("nodes", ()), names)
            if arguments["strict"]:
                findings += unknown(sorted(typed), verbs[verb], known)
        sources = context.CLIARGS.get("inventory") or constants.DEFAULT_HOST_LIST
        paths = Paths(Path(os.environ.get(FOLDER, ".")).absolute(), REPOSITORY)
        plain = inventory_of(None, os.environ, paths)
        in_use = [plain] if plain else constants.DEFAULT_HOST_LIST
        limit = context.CLIARGS.get("subset")
        if arguments["whole"] and limit:
            findings.append(
                f"--limit {limit}: a run takes all nodes of the inventory, since each waits for "
                "all others; to train on some, name them: -e nodes=A,B"
            )
        return result | {
            "nodes": [asdict(node) for node in nodes],
            "words": words,
            "known": sorted(known),
            "one_computer": on_one_computer(node.address for node in nodes),
            "remark": far_apart(nodes),
            "findings": findings,
            "refused": True,  # what they are about
            "runs": arguments["runs"],
            "hearth": hearth_command(sources, in_use),
        }

    @staticmethod
    def _given(
        hostvars: Any,
        host: str,
        wanted: set[str],
        untyped: set[str],
        options: Container[str],
    ) -> dict[str, Given]:
        """Return the wanted variables that a host has; only the options' templates are resolved."""
        given = {}
        resolved = hostvars[host]
        for name, raw in hostvars.raw_get(host).items():
            if name not in wanted:
                continue
            try:
                value = resolved[name] if name in options else raw
            except AnsibleError:
                continue  # a template of a later value; the role that uses it reports errors
            source = where(name, raw) if name in untyped else "-e"
            given[name] = Given(value, source, name not in untyped)
        return given
