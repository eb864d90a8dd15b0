"""Web pages of a run on its nodes, a chat endpoint and TensorBoard: how to open them. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from hearth.base.text import aligned
from hearth_controller.runs.observed import ObservedRun


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

    `answer` is the result of the module `hearth_page`, `variables` are Ansible's for the node,
    `local` is true if the node is this computer, and `hearth` is the command for the same
    inventory.
    """
    board = answer["served"]
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

    There are none for a run without wandb.
    """
    if not (answer["offline"] and answer["wandb_asked"]):
        return []
    verbs = [["login"], ["sync", *answer["offline"]]]
    typed = [shlex.join([answer["wandb"], *verb]) for verb in verbs]
    if not local:
        ssh, *to = login(variables)
        typed = [f"{ssh} -t {' '.join(to)} {shlex.quote(command)}" for command in typed]
    return [("wandb, once", typed[0]), ("wandb, then", typed[1])]


def chat_command(answer: Mapping[str, Any], variables: Mapping[str, Any], local: bool) -> str:
    """Return the line for a shell of this computer that talks to a run.

    `answer` is the result of the module `hearth_page`, `variables` are Ansible's for the node, and
    `local` is true if the node is this computer.
    """
    given = [f"{name}={value}" for name, value in answer["variables"].items()]
    typed = shlex.join(["env", *given, *answer["command"]])
    if local:
        return typed
    ssh, *to = login(variables)
    return f"{ssh} -t {' '.join(to)} {shlex.quote(typed)}"


def describe_chat(
    answer: Mapping[str, Any],
    run: str,
    node: str,
    variables: Mapping[str, Any],
    local: bool,
    hearth: str,
) -> list[str]:
    """Return the message about a chat with `run` on `node`.

    The arguments are those of `chat_command`; `hearth` is the command for the same inventory.
    """
    endpoint = answer["served"]
    if not endpoint:
        typed = chat_command(answer, variables, local)
        head = f"{run}: {node} can answer"
        rows = [("talk to it", typed), ("or serve it", f"{hearth} chat {run} --serve")]
    else:
        port = endpoint["port"]
        names = " and ".join(endpoint["models"])
        head = f"{run} answers on {node} as {names} (process {endpoint['pid']}), on loopback alone"
        rows = []
        if not local:
            ssh, *to = login(variables)
            rows.append(("tunnel", f"{ssh} -N -L {port}:127.0.0.1:{port} {' '.join(to)}"))
        rows += [
            ("OpenAI's API", f"http://localhost:{port}/v1"),
            ("end it", f"{hearth} chat --serve off"),
        ]
    lines = [head, *(f"  {line}" for line in aligned(rows))]
    if gone := answer.get("gone"):
        lines.append(f"  {gone}")
    if answer["busy"]:
        lines.append(f"  {answer['busy']} trains on {node}: both share its memory")
    return lines


def holders(
    run: ObservedRun, curves: Sequence[str], whole: Mapping[str, Collection[str]]
) -> list[str]:
    """Return the nodes of a run, those first that merge or load its model soonest.

    First come those that have the whole base model, by `whole`: the models that are so, by node.
    Of them it is the one with the newest `curves`, of rank 0 unless it was lost, then by rank.
    """
    nodes = dict.fromkeys([*curves, *run.parts])
    if run.run is None:
        return list(nodes)
    folder = run.run.source.folder
    return sorted(nodes, key=lambda node: folder not in whole.get(node, ()))
