"""Talking to a run's result on a node: the commands to type here. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from hearth.base.text import aligned
from hearth_controller.runs.dashboard import login


def chat_command(answer: Mapping[str, Any], variables: Mapping[str, Any], local: bool) -> str:
    """Return the line for a shell of this computer that talks to a run.

    `answer` is the result of the module `hearth_chat`, `variables` are Ansible's for the node, and
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
    endpoint = answer["endpoint"]
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
