"""Validation of `hearth_notify`: the addresses that get messages. Their values are never shown."""

from __future__ import annotations

import re
from typing import Any

OPTION = "hearth_notify"

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9]*://\S")


def malformed(value: Any) -> list[str]:
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
