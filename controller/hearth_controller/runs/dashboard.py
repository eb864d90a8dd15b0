"""TensorBoard of a run: its node, and the commands that open it from here. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from hearth.base.text import aligned


def nodes_with_curves(
    run: str, known: Mapping[str, Iterable[Mapping[str, Any]] | None]
) -> list[str]:
    """Return the nodes that have curves of a run, the newest ones first.

    The leader of a group writes them, rank 0 unless its node was lost. `known` has the digests of
    `hearth_runs` by node, None for one that does not answer.
    """
    ages = {
        node: digest["curves"]
        for node, digests in known.items()
        for digest in digests or ()
        if digest["name"] == run and digest.get("curves") is not None
    }
    return sorted(ages, key=lambda node: ages[node])


def login(variables: Mapping[str, Any]) -> list[str]:
    """Return the shell words of a command that logs in to a node as Ansible does.

    `variables` are Ansible's for the node. Its ssh arguments are quoted for a shell already.
    """
    parts = ["ssh"]
    for name in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        parts += [str(variables[name]).strip()] if variables.get(name) else []
    key = variables.get("ansible_ssh_private_key_file") or variables.get("ansible_private_key_file")
    if key:
        parts += ["-i", shlex.quote(str(key))]
    if port := variables.get("ansible_port"):
        parts += ["-p", str(port)]
    user = variables.get("ansible_user")
    host = str(variables.get("ansible_host") or variables["inventory_hostname"])
    return [*parts, shlex.quote(f"{user}@{host}" if user else host)]


def describe_dashboard(
    answer: Mapping[str, Any], node: str, variables: Mapping[str, Any], local: bool, hearth: str
) -> list[str]:
    """Return the message about the TensorBoard on a node.

    `answer` is the result of the module `hearth_dashboard`, `variables` are Ansible's for the node,
    `local` is true if the node is this computer, and `hearth` is the command for the same
    inventory.
    """
    board = answer["dashboard"]
    if not board:
        return []
    port = board["port"]
    rows = []
    if not local:
        ssh, *to = login(variables)
        tunnel = f"{ssh} -N -L {port}:127.0.0.1:{port} {' '.join(to)}"
        rows.append(("tunnel", tunnel))
    rows += [
        ("open", f"http://localhost:{port}/"),
        ("end it", f"{hearth} dashboard --serve off"),
        *_wandb(answer, variables, local),
    ]
    return [
        f"{board['run']}: TensorBoard runs on {node} (process {board['pid']}), on loopback alone",
        *(f"  {line}" for line in aligned(rows)),
    ]


def _wandb(
    answer: Mapping[str, Any], variables: Mapping[str, Any], local: bool
) -> list[tuple[str, str]]:
    """Return the commands that upload offline wandb runs; wandb itself prompts for the API key.

    There are none where nobody asked for wandb.
    """
    if not (answer["offline"] and answer["wandb_asked"]):
        return []
    verbs = [["login"], ["sync", *answer["offline"]]]
    typed = [shlex.join([answer["wandb"], *verb]) for verb in verbs]
    if not local:
        ssh, *to = login(variables)
        typed = [f"{ssh} -t {' '.join(to)} {shlex.quote(command)}" for command in typed]
    return [("wandb, once", typed[0]), ("wandb, then", typed[1])]
