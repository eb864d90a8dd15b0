"""The check of chat templates before they are used: they need no other file, and come to an end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jinja2 import Environment, TemplateSyntaxError

from hearth.data.findings import Endless
from hearth.data.rendering import Renderer
from hearth.data.template import CONSTANTS, SECONDS, computing_at_most

_OTHER_FILES = frozenset({"include", "import", "from", "extends"})

_HEAVY = re.compile(r"\*|\d{6,}|%\d{4,}|\blipsum\b|\b(ljust|rjust|center|zfill)\b")
"""Parts of a template of which one step can compute for ever, or fill the memory."""

_ASK, _ANSWER = {"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}
_CONVERSATIONS = ([_ASK], [_ASK, _ANSWER, _ASK])


def template_problems(tokenizer: Any) -> list[str]:
    """Return the faults of the chat templates of `tokenizer`, in sentences without a place."""
    known = tokenizer.chat_template or {}
    return [
        problem
        for template in (known.values() if isinstance(known, dict) else [known])
        for problem in _problems(tokenizer, template)
    ]


def _problems(tokenizer: Any, template: str) -> Iterator[str]:
    try:
        if other := sorted(_first_words(template) & _OTHER_FILES):
            yield f"its chat template needs another file ({', '.join(other)}), which is not read"
            return
        _try_out(tokenizer, template)
    except TemplateSyntaxError as error:
        yield f"its chat template cannot be read ({error.message} in line {error.lineno})"
    except Endless as error:
        yield f"its chat template cannot be used: {error}"


def _try_out(tokenizer: Any, template: str) -> None:
    """Render conversations, which the template may refuse.

    Raises `TemplateSyntaxError` if it is none, and `Endless` if it does not come to an end.
    """
    with Renderer() as apart:
        for conversation in _CONVERSATIONS:
            try:
                if _HEAVY.search(template):
                    apart.render(template, conversation, tokenizer.special_tokens_map)
                with computing_at_most(SECONDS, Endless()):
                    tokenizer.apply_chat_template(
                        conversation, chat_template=template, tokenize=False, **CONSTANTS
                    )
            except (TemplateSyntaxError, Endless):
                raise
            except Exception:  # it wants other roles or parts, which a data set may have
                continue


def _first_words(template: str) -> set[str]:
    """Return the words that statements of a template begin with, such as `for`."""
    found, begins = set(), False
    for _, kind, text in Environment().lex(template):
        if kind == "name" and begins:
            found.add(text)
        begins = kind == "block_begin" or (begins and kind == "whitespace")
    return found
