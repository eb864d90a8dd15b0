"""The process that renders chat templates, one request a line, each within bounds.

A template is a program of others: it can compute for ever, or fill the memory. The kernel ends this
process then, whatever it is at.

It imports no torch, so that it starts soon.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import sys
import time
from typing import Any

from hearth.data.template import CONSTANTS

_MEMORY = 1 << 30
"""Bytes that a rendering may take beside what the process has already."""

_LONGEST = 1 << 26
"""Characters that a rendered conversation may have."""


def answer(request: dict[str, Any]) -> dict[str, str]:
    """Render the `conversation` of a request; return its `text`, or the `error` of the template.

    Raises `MemoryError` if that takes too much memory.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        texts, _ = render_jinja_template(
            [request["conversation"]],
            tools=request["tools"],
            chat_template=request["template"],
            add_generation_prompt=request["prompt"],
            **request["variables"],
            **CONSTANTS,
        )
    except MemoryError:
        raise
    except Exception as error:  # a template can raise anything
        return {"error": f"{type(error).__name__}: {error}"[:1000]}
    if len(texts[0]) > _LONGEST:
        raise MemoryError
    return {"text": texts[0]}


def main(seconds: float) -> None:
    """Answer the requests on standard input, each within so many `seconds` of computing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer({"conversation": [], "tools": None, "template": "", "prompt": False, "variables": {}})
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        until = math.ceil(time.process_time() + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
