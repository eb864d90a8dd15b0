"""Ollama's Modelfile: the model, its adapter, its chat template and where an answer ends."""

from __future__ import annotations

from collections.abc import Iterable

from hearth.after.turns import Turns

MODELFILE = "Modelfile"

_ENDS_TEXT = '"""'
"""Around any text; within it, nothing can keep this from ending it (Ollama, parser/parser.go)."""


def modelfile(
    name: str, base: str, adapter: str | None, turns: Turns | None, stops: Iterable[str]
) -> str:
    """Return the text of the Modelfile of a run `name`.

    `base` is a GGUF file of the same folder or the name of a model in Ollama, `adapter` a GGUF
    file that goes on top of it. Without `turns` Ollama reads the template from the GGUF file.
    """
    lines = [f"# The run {name}, exported by Hearth:", f"#   ollama create {name} -f {MODELFILE}"]
    lines += [f"#   ollama run {name}", f"FROM {base}"]
    lines += [f"ADAPTER ./{adapter}"] if adapter else []
    template = turns.as_go() if turns else ""
    if template and _ENDS_TEXT not in template:
        lines.append(f"TEMPLATE {_ENDS_TEXT}{template}{_ENDS_TEXT}")
    elif not adapter:
        lines += [
            "# This model's chat template is more than fixed texts around each message, so it",
            "# is left to Ollama, which compares the one in the GGUF file with those that it",
            "# knows. See which one it took:",
            f"#   ollama show --template {name}",
        ]
    lines += [
        f"PARAMETER stop {_ENDS_TEXT}{stop}{_ENDS_TEXT}"
        for stop in dict.fromkeys(stops)
        if _ENDS_TEXT not in stop
    ]
    return "\n".join(lines) + "\n"
