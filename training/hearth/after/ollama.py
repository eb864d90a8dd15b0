"""Ollama's Modelfile: the GGUF file, its chat template for Ollama, and the ends of an answer.

Ollama's templates are Go templates, and the models' are Jinja. One that only puts fixed texts
around each message can be written as either; `turns_of` finds those texts by rendering, and takes
them only if they give the same conversations again. No torch, no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

MODELFILE = "Modelfile"

_ENDS_TEXT = '"""'
"""Around any text; within it, nothing can keep this from ending it (Ollama, parser/parser.go)."""

Messages = Sequence[tuple[str, str]]
"""Role and content of each message."""

Render = Callable[[Messages, bool], str]
"""Renders a conversation, with or without the prompt for the next answer. May raise ValueError."""

_S, _U, _A, _V, _B = "s1-Hearth", "u1-Hearth", "a1-Hearth", "u2-Hearth", "a2-Hearth"


@dataclass(frozen=True)
class Turns:
    """Fixed texts around the messages of a conversation.

    Attributes:
        first: before a question that begins the conversation, with a default system message.
        system: before a system message, which begins the conversation; None if there can be none.
        joint: between a system message and the question after it.
        user: before any other question.
        asked: after a question.
        assistant: before an answer.
        answered: after an answer.
        prompt: before the answer that is wanted.
    """

    first: str
    system: str | None
    joint: str
    user: str
    asked: str
    assistant: str
    answered: str
    prompt: str

    def render(self, messages: Messages, prompt: bool) -> str:
        """Return the conversation, with the prompt for the next answer."""
        text, before = "", ""
        for role, content in messages:
            match role, before:
                case "system", _:
                    text += f"{self.system}{content}{self.joint}"
                case "user", "":
                    text += f"{self.first}{content}{self.asked}"
                case "user", "system":
                    text += f"{content}{self.asked}"
                case "user", _:
                    text += f"{self.user}{content}{self.asked}"
                case _:
                    text += f"{self.assistant}{content}{self.answered}"
            before = role
        return text + (self.prompt if prompt else "")

    def as_go(self) -> str:
        """Return the same as a template of Ollama's.

        An answer that ends the conversation is to be continued: nothing stands after it.
        """
        branches = [
            '{{ if eq .Role "user" }}'
            f'{{{{ if eq $before "" }}}}{_go(self.first)}'
            f'{{{{ else if ne $before "system" }}}}{_go(self.user)}{{{{ end }}}}'
            f"{{{{ .Content }}}}{_go(self.asked)}"
            f"{{{{ if $last }}}}{_go(self.prompt)}{{{{ end }}}}",
            '{{ else if eq .Role "assistant" }}'
            f"{_go(self.assistant)}{{{{ .Content }}}}"
            f"{{{{ if not $last }}}}{_go(self.answered)}{{{{ end }}}}",
        ]
        if self.system is not None:
            branches.append(
                '{{ else if eq .Role "system" }}'
                f"{_go(self.system)}{{{{ .Content }}}}{_go(self.joint)}"
            )
        return (
            '{{ $before := "" }}{{ range $i, $_ := .Messages }}'
            "{{ $last := eq (len (slice $.Messages $i)) 1 }}"
            + "".join(branches)
            + "{{ end }}{{ $before = .Role }}{{ end }}"
        )


def turns_of(render: Render) -> Turns | None:
    """Return the template that `render` applies as turns, None if it does more than that."""
    try:
        found = _found(render)
    except ValueError:
        return None
    return found if found and all(_same(found, render, each) for each in _tries(found)) else None


def _found(render: Render) -> Turns | None:
    """Return the texts that `render` puts around messages, None if it leaves one out."""
    first, asked = _around(render([("user", _U)], False), _U)
    prompt = render([("user", _U)], True).removeprefix(first + _U + asked)
    conversation = [("user", _U), ("assistant", _A), ("user", _V)]
    whole = render(conversation, False)
    after = _between(whole, _U, _A)
    _, answered = _around(render(conversation[:2], False), _A)
    before = _between(whole, _A, _V)
    if not (after.startswith(asked) and before.startswith(answered)):
        return None
    system, joint = None, ""
    try:
        asked_with_system = render([("system", _S), ("user", _U)], False)
    except ValueError:  # the template refuses one
        pass
    else:
        system, _ = _around(asked_with_system, _S)
        joint = _between(asked_with_system, _S, _U)
    return Turns(
        first=first,
        system=system,
        joint=joint,
        user=before.removeprefix(answered),
        asked=asked,
        assistant=after.removeprefix(asked),
        answered=answered,
        prompt=prompt,
    )


def _tries(turns: Turns) -> list[Messages]:
    """Return conversations that must be the same; other contents and lengths than those above."""
    plain = [("user", _V), ("assistant", _B), ("user", "42?"), ("assistant", _A), ("user", _U)]
    conversations: list[Messages] = [plain[:length] for length in range(1, len(plain) + 1)]
    if turns.system is not None:
        conversations += [[("system", "Be brief."), *each] for each in conversations]
    return conversations


def _same(turns: Turns, render: Render, messages: Messages) -> bool:
    prompt = messages[-1][0] == "user"
    return turns.render(messages, prompt) == render(messages, prompt)


def _around(text: str, content: str) -> tuple[str, str]:
    """Return the texts before and after `content`. Raises `ValueError` if it is not there."""
    before, found, after = text.partition(content)
    if not found:
        raise ValueError(f"{content} is missing")
    return before, after


def _between(text: str, one: str, other: str) -> str:
    """Return the text between two contents. Raises `ValueError` if one is not there."""
    return _around(_around(text, one)[1], other)[0]


def _go(text: str) -> str:
    """Return a text as a Go template writes it."""
    return text.replace("{{", '{{ "{{" }}')


def modelfile(name: str, file: str, turns: Turns | None, stops: Iterable[str]) -> str:
    """Return the text of the Modelfile of a run `name`.

    `file` is a GGUF file of the same folder. Without `turns` Ollama reads the template from it.
    """
    lines = [f"# The run {name}, exported by Hearth:", f"#   ollama create {name} -f {MODELFILE}"]
    lines += [f"#   ollama run {name}", f"FROM ./{file}"]
    template = turns.as_go() if turns else ""
    if template and _ENDS_TEXT not in template:
        lines.append(f"TEMPLATE {_ENDS_TEXT}{template}{_ENDS_TEXT}")
    else:
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
