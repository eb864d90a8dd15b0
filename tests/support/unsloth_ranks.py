"""The process that ranks with Unsloth are forked from, on two cards that are stood in for."""

from __future__ import annotations

from support.ranks import TRAINER, Origin
from support.repository import ROOT
from support.supervisors import TRAINING

PYTHON = str(ROOT / ".venv-unsloth/bin/python")
LENGTH = 32
"""Tokens of a row in these tests: the interpreter computes some hundred tokens a second."""


def variables(cards: str) -> dict[str, str]:
    """Return the variables of a process with cards of these compute capabilities."""
    return {
        "PYTHONPATH": f"{TRAINING}:{ROOT / 'tests/support/stand_in_gpu'}",
        "HEARTH_STAND_IN_GPU": cards,
        "TRITON_INTERPRET": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "UNSLOTH_FUSED_CE_COMPILE_DISABLE": "1",
        "UNSLOTH_ENABLE_FLEX_ATTENTION": "0",
    }


UNSLOTH = Origin(
    PYTHON, ("hearth.model.unsloth_backend", *TRAINER), tuple(variables("8.9,8.9").items())
)
