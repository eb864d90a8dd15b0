"""Turns on the stand-in of an NVIDIA GPU in every Python that has this folder in PYTHONPATH.

HEARTH_STAND_IN_GPU lists the compute capability of each card, as in `8.9,7.5`.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def _torch(torch: ModuleType) -> None:
    import stand_in_cuda

    cards = os.environ["HEARTH_STAND_IN_GPU"].split(",")
    stand_in_cuda.install(torch, [tuple(map(int, card.split("."))) for card in cards])


def _interpreter(module: ModuleType) -> None:
    import interpreter_bf16

    interpreter_bf16.install(module)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module right after the module's first import."""

    def __init__(self, calls: dict[str, Callable[[ModuleType], None]]) -> None:
        self._calls = calls

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        call = self._calls.pop(name, None)
        spec = importlib.util.find_spec(name) if call else None
        if call is None or spec is None or spec.loader is None:
            return None
        plain = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            plain(module)
            call(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if os.environ.get("HEARTH_STAND_IN_GPU"):
    sys.meta_path.insert(
        0, _AfterImport({"torch": _torch, "triton.runtime.interpreter": _interpreter})
    )
