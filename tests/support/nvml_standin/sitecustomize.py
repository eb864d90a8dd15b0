"""Has ranks that have this folder in PYTHONPATH compute on the cards that STAND_IN_NVML tells of.

They compute on the processor all the same: only the energy of a run is that of the cards.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Energy(importlib.abc.MetaPathFinder):
    """Changes the module that measures energy right after its import."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "hearth.ranks.energy":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def loaded(module: ModuleType) -> None:
            import pynvml

            load(module)
            module.own_cards = lambda world: pynvml.stand_in_uuids()

        spec.loader.exec_module = loaded
        return spec


if "STAND_IN_NVML" in os.environ:  # a rank may be forked from a process that has read this
    sys.meta_path.insert(0, _Energy())
