"""Validation of `hearth_environment`: the environment variables that the inventory gives a node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hearth.base.places import NOTIFY, OF_A_LAUNCH, OF_HEARTH, TOKENS

OPTION = "hearth_environment"

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
